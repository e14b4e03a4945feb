-- One operation of a Headway store. KEYS[1] is the tag of its namespace, which all its keys share.
-- ARGV[1] names the operation, ARGV[2] has all there is to say about it (nothing, if only a shortcut
-- is asked for), ARGV[3] is the caller,
-- ARGV[4] what it knows of the namespace and ARGV[5] the number of its connection; what follows is
-- for a shortcut, if there is one.

if redis.replicate_commands then redis.replicate_commands() end -- for servers before 7

local NS = KEYS[1] .. ':'
local UNCAPPED = 4611686018427387904 -- 2^62, as in Python
local INBOX_MS = 24 * 3600 * 1000
-- What nobody uses for so long is forgotten; how often what is used is told to stay. The limits and
-- "meta" are kept for ever. The counts go a day before the rest: if the server's clock is put
-- forward by days, nothing else is missing unless they are, and by that the loss is noticed.
local COUNTS_LIFE_SECONDS, REFRESH_SECONDS = 7 * 24 * 3600, 3600
local LIFE_SECONDS = COUNTS_LIFE_SECONDS + 24 * 3600
-- Of many, somebody is heard at any moment, and buries the dead with it.
local FEW_HOLDERS = 32

-- A ticket with more keys than that is for the rules, which write them down in parts.
local FEW_KEYS = 100

-- What comes late, on a connection that its caller has given up, is refused for so long.
local LATE_SECONDS = 3600

-- What is counted stands beside the states of the keys, under no key's name, so that a shortcut
-- reads and writes all it needs at once. The seal says which state of knowledge this is and by
-- which terms, once it has settled.
local COUNTS = ''
-- The sizes tell whether a server has thrown one of the other rows away: how many tickets are
-- parked, and how many entries the rest has, in one text.
local SEAL, ARRIVAL, TOKEN, VERSION, REFRESHED_AT, HAS_LOANS, PARKED, SIZES = 1, 2, 3, 4, 5, 6, 7, 8
local NO_COUNTS = {'', 0, 0, 0, 0, false, 0, ''}

local name, caller, connection = ARGV[1], ARGV[3], ARGV[5]

-- Ids are "holder-number" or "holder-jobN".
local function holder_of(id) return string.match(id, '^[^-]*') end

-- What is a holder's: its leases by their ids, what others are told of it, and the number of its
-- newest connection.
local CARD, NEWEST = '', '#'
local OTHER_FIELDS = 2
local function leases_of(holder) return NS .. 'of:' .. holder end
local function waiting_of(holder) return NS .. 'waiting:' .. holder end

local function sizes()
  return redis.call('ZCARD', NS .. 'holders') .. ' ' .. redis.call('SCARD', NS .. 'gated') .. ' '
    .. redis.call('HLEN', NS .. 'loans') .. ' ' .. redis.call('ZCARD', NS .. 'children') .. ' '
    .. redis.call('EXISTS', NS .. 'terms')
end

-- Whether nothing is missing that the counts speak of.
local function is_whole(counts)
  return counts[SIZES] == sizes() and counts[PARKED] == redis.call('ZCARD', NS .. 'parked')
end
