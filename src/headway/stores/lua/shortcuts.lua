-- The usual cases, without the rules: a request that finds room, or others who wait where nothing
-- but room is wanting; the end of a lease, and one who waited for that; and a beat. Each looks at
-- all there is to see before it writes anything, and leaves whatever is not usual to the rules.
-- What a case does not need is neither read nor defined for it: that is most of what it costs.

-- The time, once somebody has asked for it; and what is counted, once that was read.
local now, counts

local function clock()
  now = now or server_seconds()
  return now
end

-- Tokens and arrivals grow with the clock too, so that they do so after a loss of data.
local function number_after(last) return math.max(math.floor(clock() * 1e6), last + 1) end

-- What changes of a ticket, and what does not.
local function ticket_text(changing, constant)
  return '\146' .. cmsgpack.pack(changing) .. constant
end

if #ARGV > 5 then

-- Fields of a key's state, as it is packed.
local CAP, PAUSED, BUDGET, USED, RESERVED = 1, 2, 3, 4, 5
local WAITING, PROMISED, HOLD, COOLDOWN = 6, 7, 9, 10

local id, states = ARGV[6], {}

-- Read the states of these keys, and the counts; whether nothing but room can stand in the way.
local function read_plain(path)
  local is_read = counts ~= nil
  for _, key in ipairs(path) do is_read = is_read and states[key] end
  if is_read then return true end
  local texts = redis.call('HMGET', NS .. 'keys', COUNTS, unpack(path))
  counts = texts[1] and cmsgpack.unpack(texts[1]) or NO_COUNTS
  for i, key in ipairs(path) do
    if not states[key] then
      local state = texts[i + 1] and cmsgpack.unpack(texts[i + 1])
      if not state or state[PAUSED] or state[BUDGET] < UNCAPPED or state[COOLDOWN] then
        return false
      end
      states[key] = state
    end
  end
  return true
end

local function is_full(state, weight)
  return state[USED] + state[RESERVED] + weight > state[CAP]
end

local function write_down(changed, arrived, given, more_parked)
  local fields = {COUNTS, cmsgpack.pack({
    counts[SEAL], arrived, given, counts[VERSION] + 1, counts[REFRESHED_AT], counts[HAS_LOANS],
    counts[PARKED] + more_parked, counts[SIZES],
  })}
  for key, state in pairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = key, cmsgpack.pack(state)
  end
  redis.call('HSET', NS .. 'keys', unpack(fields))
end

-- How long until the first of the others would be taken for dead; false if there are no others,
-- and none if somebody may be dead by now.
local function first_silence()
  local first = redis.call('ZRANGE', NS .. 'holders', 0, 1, 'WITHSCORES')
  if not first[2] or tonumber(first[2]) <= clock() then return nil end
  local expiry = first[1] ~= caller and first[2] or first[4]
  return expiry and tostring(expiry - now) or false
end

-- Whether the caller knows what the namespace knows, is known itself, speaks on its newest
-- connection, and has this lease or not.
local function is_heard(has_lease)
  if counts[SEAL] ~= ARGV[4] then return false end
  local card, newest, lease = unpack(
    redis.call('HMGET', leases_of(caller), CARD, NEWEST, id))
  return card and newest == connection and (lease ~= false) == has_lease
end

local shortcut

if name == 'request' then

local weight, constant, path = tonumber(ARGV[7]), ARGV[10], {unpack(ARGV, 11)}

local function park(arrived, rank, last)
  local key = path[last]
  local line, silence = NS .. 'line:' .. key, first_silence()
  if silence == nil or redis.call('EXISTS', NS .. 'gated') > 0 then return nil end
  local changing = {arrived, rank, now, key, {}, {}, 0}
  local changed = {[key] = states[key]}
  for i = 1, last - 1 do
    local passed = states[path[i]]
    if passed[CAP] < UNCAPPED then
      passed[RESERVED], passed[PROMISED] = passed[RESERVED] + weight, passed[PROMISED] + 1
      changed[path[i]], changing[5][#changing[5] + 1] = passed, path[i]
    end
  end
  -- Who keeps something while it waits, or is heavy, may keep those inside of a lease waiting.
  if (#changing[5] > 0 or weight > 1) and redis.call('EXISTS', NS .. 'insiders') > 0 then return nil end
  local waiting = waiting_of(caller)
  if redis.call('HSETNX', waiting, id, ticket_text(changing, constant)) == 0 then return nil end
  redis.call('EXPIRE', waiting, LIFE_SECONDS)
  redis.call('ZADD', line, rank, id)
  redis.call('EXPIRE', line, LIFE_SECONDS)
  redis.call('ZADD', NS .. 'parked', rank, id)
  redis.call('EXPIRE', NS .. 'parked', LIFE_SECONDS)
  states[key][WAITING] = states[key][WAITING] + 1
  write_down(changed, arrived, counts[TOKEN], 1)
  local is_to_watch = redis.call('ZCARD', NS .. 'holders') <= FEW_HOLDERS
  return {'waiting', 0, key, arrived, rank, now, is_to_watch and silence}
end

function shortcut()
  if not read_plain(path) or not is_heard(false) then return nil end
  local arrived, stop = number_after(counts[ARRIVAL]), nil
  local rank = arrived - ARGV[8]
  for i, key in ipairs(path) do
    local state = states[key]
    if weight > state[CAP] then return nil end
    if not stop and state[CAP] < UNCAPPED and (state[WAITING] > 0 or is_full(state, weight)) then
      stop = i
    end
  end
  if stop then
    local state = states[path[stop]]
    if state[WAITING] >= tonumber(ARGV[9]) then return nil end
    if not is_full(state, weight) then
      local head = redis.call('ZRANGE', NS .. 'line:' .. path[stop], 0, 0, 'WITHSCORES')
      if not head[2] or tonumber(head[2]) >= rank then return nil end
    end
    return park(arrived, rank, stop)
  end
  local given = number_after(counts[TOKEN])
  local changing = {arrived, rank, now, false, {}, {}, given}
  redis.call('HSET', leases_of(caller), id, ticket_text(changing, constant))
  for _, state in pairs(states) do state[USED] = state[USED] + weight end
  write_down(states, arrived, given, 0)
  return {'granted', given, false, arrived, rank, now, false}
end

elseif name == 'release' then

local weight, held_seconds, path = tonumber(ARGV[7]), tonumber(ARGV[8]), {unpack(ARGV, 9)}

-- The first in line, if there is room for it here and all the way on; false if there is none here.
local function next_in(key)
  local first = redis.call('ZRANGE', NS .. 'line:' .. key, 0, 0)[1]
  local text = first and redis.call('HGET', waiting_of(holder_of(first)), first)
  if not text or first_silence() == nil then return nil end
  local changing, asked_for = unpack(cmsgpack.unpack(text))
  local its_path, its_weight = asked_for[2], asked_for[4]
  if #its_path > FEW_KEYS then return nil end
  if is_full(states[key], its_weight) then return false end
  if not read_plain(its_path) then return nil end
  local has_passed = true
  for _, each in ipairs(its_path) do
    if each == key then
      has_passed = false
    elseif not has_passed and states[each][CAP] < UNCAPPED then
      if states[each][WAITING] > 0 or is_full(states[each], its_weight) then return nil end
    end
  end
  return {
    id = first, path = its_path, weight = its_weight, changing = changing, constant = asked_for,
  }
end

local function let_in(ticket, key, given)
  for _, each in ipairs(ticket.path) do
    states[each][USED] = states[each][USED] + ticket.weight
  end
  for _, each in ipairs(ticket.changing[5]) do
    local state = states[each]
    state[RESERVED], state[PROMISED] = state[RESERVED] - ticket.weight, state[PROMISED] - 1
  end
  states[key][WAITING] = states[key][WAITING] - 1
  local c = ticket.changing
  ticket.changing = {c[1], c[2], clock(), false, {}, {}, given}
end

local function move_in(ticket, key)
  local holder = holder_of(ticket.id)
  redis.call('ZREM', NS .. 'line:' .. key, ticket.id)
  redis.call('ZREM', NS .. 'parked', ticket.id)
  if #ticket.constant[7] > 0 then redis.call('ZREM', NS .. 'insiders', ticket.id) end
  redis.call('HDEL', waiting_of(holder), ticket.id)
  redis.call('HSET', leases_of(holder), ticket.id,
    ticket_text(ticket.changing, cmsgpack.pack(ticket.constant)))
end

function shortcut()
  if not read_plain(path) or counts[HAS_LOANS] or not is_heard(true) then return nil end
  local key
  for _, each in ipairs(path) do
    local state = states[each]
    local usual = state[HOLD]
    state[USED] = state[USED] - weight
    state[HOLD] = usual and usual + (held_seconds - usual) / 5 or held_seconds
    if state[WAITING] > 0 then
      if key then return nil end
      key = each
    end
  end
  local given, heir = counts[TOKEN], false
  if key then
    heir = next_in(key)
    if heir == nil then return nil end
    if heir then
      given = number_after(given)
      let_in(heir, key, given)
      -- Room for one more is for the rules to give.
      if states[key][WAITING] > 0 and not is_full(states[key], 1) then return nil end
    end
  end
  redis.call('HDEL', leases_of(caller), id) -- first: it needs no memory
  if heir then move_in(heir, key) end
  write_down(states, counts[ARRIVAL], given, heir and -1 or 0)
  if not heir then return {'released'} end
  local news = {heir.id, {'granted', given}}
  if holder_of(heir.id) == caller then return {'released', news} end
  local inbox = NS .. 'inbox:' .. holder_of(heir.id)
  redis.call('RPUSH', inbox, cmsgpack.pack(news))
  redis.call('PEXPIRE', inbox, INBOX_MS)
  return {'released'}
end

else

function shortcut()
  local lease_seconds, known_tickets = ARGV[6], tonumber(ARGV[7])
  read_plain({})
  -- Nothing of the terms is asked for by a beat; that they have changed is told.
  local seal, version = string.match(counts[SEAL], '^(.* )(%S*)$')
  if not seal or seal ~= string.match(ARGV[4], '^.* ') then return nil end
  if clock() >= counts[REFRESHED_AT] + REFRESH_SECONDS or first_silence() == nil then return nil end
  -- Nobody else would find out soon that a row is missing.
  local leases, waiting = leases_of(caller), waiting_of(caller)
  local kept = redis.call('HLEN', leases) - OTHER_FIELDS + redis.call('HLEN', waiting)
  if kept < known_tickets or not redis.call('HGET', leases, CARD) or not is_whole(counts) then
    return nil
  end
  redis.call('DEL', NS .. 'nothing') -- then the rest needs no memory
  local is_known = redis.call('ZADD', NS .. 'holders', 'XX', 'CH', now + lease_seconds, caller) == 1
  return is_known and {true, tonumber(version)} or nil
end

end

local answer = shortcut()
if answer then return cmsgpack.pack(answer) end

end
