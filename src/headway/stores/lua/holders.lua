-- Who is there: coming, being heard, and going.

-- Clocks that seem to be apart by more microseconds than before were set.
local CLOCK_SLACK = 5e6

-- How long the end of settling is put off for someone who brings limits.
local TERMS_SECONDS = 1

local function announce_lease(ticket)
  for _, key in ipairs(ticket.path) do
    local state = book.key(key)
    state.used = state.used + ticket.weight
    book.change(state)
  end
  book.keep(ticket)
end

-- Epochs are numbered, so that one can tell which is the later of two.
local function number_of(epoch) return tonumber(string.match(epoch, '^%d+') or 0) end

-- Rows without their counts: whoever is alive brings its own again.
local function drop_rows()
  for _, holder in ipairs(redis.call('ZRANGE', NS .. 'holders', 0, -1)) do
    for _, ticket in ipairs(book.tickets_of(holder)) do
      if ticket.at then redis.call('DEL', NS .. 'line:' .. ticket.at) end
    end
    redis.call('DEL', leases_of(holder), waiting_of(holder))
  end
  for _, each in ipairs({'holders', 'parked', 'children', 'insiders', 'loans', 'gated'}) do
    redis.call('DEL', NS .. each)
  end
  book.tickets = {}
end

-- This server lost what it knew, or may have, or others have gone on elsewhere meanwhile: nothing
-- is granted until everyone had the time to come back, and until then nobody is taken for dead.
-- Whoever finds nothing cannot tell a namespace that is new from one that was lost.
local function begin_anew(a)
  local server, lease_seconds, new_epoch = a[1], a[3], a[4]
  local present, callers = number_of(meta.epoch), number_of(arguments[1])
  local is_left_behind = arguments[1] ~= meta.epoch and callers >= present
  -- An hour after it was promoted, a server without replicas forgets that it was.
  if server == string.match(meta.server, '^[^.]*') .. '.-1' then set_meta('server', server) end
  if not meta.is_lost and meta.server == server and not is_left_behind then return end
  if redis.call('EXISTS', NS .. 'keys') == 0 then drop_rows() else recount() end
  set_meta('epoch', string.format('%d.%s', math.max(present, callers) + 1, new_epoch))
  set_meta('server', server)
  set_meta('format', FORMAT)
  -- Versions of lost terms must not mean others now, however fast they have followed each other: who
  -- asks by one of them may have asked before the loss. In milliseconds: a text shows 14 digits.
  set_meta('terms', math.max(meta.terms + 1, math.floor(now * 1000)))
  set_meta('settles_at', now + lease_seconds)
  set_meta('settled', false)
  local until_then = string.format('%.17g', meta.settles_at)
  for _, holder in ipairs(redis.call('ZRANGE', NS .. 'holders', 0, -1)) do
    redis.call('ZADD', NS .. 'holders', 'XX', 'GT', until_then, holder)
  end
end

-- Whether the caller shows that a row is missing: it is known only by half, or speaks of tickets
-- that are neither here nor have ended. Who comes from another epoch has lost its time, or has it.
local function misses_rows(a)
  if arguments[1] ~= meta.epoch then return false end
  local leases, waiting = leases_of(caller), waiting_of(caller)
  local is_listed = redis.call('ZSCORE', NS .. 'holders', caller) ~= false
  if is_listed ~= (redis.call('HEXISTS', leases, CARD) == 1) then return true end
  if not is_listed then return false end
  for _, each in ipairs(a[5]) do
    local id = each[1][1]
    local is_kept = redis.call('HEXISTS', leases, id) + redis.call('HEXISTS', waiting, id) > 0
    if not is_kept and not verdict_on(id) then return true end
  end
  return false
end

-- Rows of a caller that is on no list are not counted.
local function drop_uncounted()
  if redis.call('ZSCORE', NS .. 'holders', caller) then return end
  for _, ticket in ipairs(book.tickets_of(caller)) do
    redis.call('HDEL', ticket.kept_in, ticket.id)
    book.tickets[ticket.id] = nil
  end
end

-- Take back onto the book what the caller says of one of its tickets; or how that has ended. A ticket
-- that waits, as far as its caller knows, and was granted and lost meanwhile is back in line; it
-- keeps its token, of which the caller is told: the message of that grant may still arrive. In a
-- namespace that has lost what it knew leases are believed until it has settled; afterwards
-- others may have their slots.
local function come_back(ticket, token)
  local verdict = verdict_on(ticket.id)
  local lost = verdict and verdict[1] == 'revoked' and verdict[3] -- the token, if it was not heard
  if verdict and not (lost and (token == 0 or token > lost)) then return verdict end
  if verdict then redis.call('HDEL', NS .. 'verdicts:' .. caller, ticket.id) end
  if token == 0 then
    ticket.token = lost or 0
    rules.restart(ticket)
  elseif book.is_settling then
    ticket.token = token
    announce_lease(ticket)
  else
    return {'revoked', 'it was not heard in time'}
  end
end

-- How far the server's clock is ahead of that of the caller's machine. All processes of one go by
-- what was measured first: how long their words were on the way must not change an order.
local function clock_offset(machine, microseconds)
  local measured = math.floor(now * 1e6) - microseconds
  local known = redis.call('HGET', NS .. 'clocks', machine)
  if known and math.abs(known - measured) < CLOCK_SLACK then return tonumber(known) end
  redis.call('HSET', NS .. 'clocks', machine, string.format('%.0f', measured))
  redis.call('EXPIRE', NS .. 'clocks', LIFE_SECONDS)
  return measured
end

-- Let no token fall behind those that the caller's home was given before data was lost: one that
-- it has surely seen, and a number that none has reached. The clock alone may have been put back.
local function raise_tokens(given, unreached)
  if book.is_settling or given > math.max(meta.token, now * 1e6) then
    set_meta('token', math.max(meta.token, unreached))
  end
end

-- Say what the caller holds and waits for, and nothing else; but for what it is just asking for or
-- giving back, which may be either.
function operations.announce(a)
  local card, lease_seconds, has_to_know, has_more = a[2], a[3], a[8], a[9]
  -- Whoever brings tickets brings what the terms make of their keys.
  if has_to_know and (a[6] ~= meta.epoch or a[7] ~= meta.terms) then
    redis.call('EXPIRE', leases_of(caller), LIFE_SECONDS) -- its connection stands there by now
    return {'terms', meta.epoch, meta.terms, redis.call('GET', NS .. 'terms') or ''}
  end
  -- The caller will set at once what is lacking in the terms; nothing is granted before.
  if has_more and book.is_settling then
    set_meta('settles_at', math.max(meta.settles_at, now + TERMS_SECONDS))
  end
  raise_tokens(a[13], a[14])
  local is_alone = redis.call('ZCARD', NS .. 'holders') == 0
  drop_uncounted()
  redis.call('ZADD', NS .. 'holders', book.now + lease_seconds, caller)
  redis.call('EXPIRE', NS .. 'holders', LIFE_SECONDS)
  redis.call('HSET', leases_of(caller), CARD, card)
  redis.call('EXPIRE', leases_of(caller), LIFE_SECONDS)
  local known, lost, requeued, back = {}, {}, {}, {}
  for _, each in ipairs(a[5]) do known[each[1][1]] = true end
  for _, id in ipairs(a[12]) do known[id] = true end
  local forgotten = {}
  for _, ticket in ipairs(book.tickets_of(caller)) do
    if not known[ticket.id] then forgotten[#forgotten + 1] = ticket end
  end
  rules.end_all(forgotten)
  for _, each in ipairs(a[5]) do
    local ticket, token, terms = new_ticket(unpack(each[1])), each[2], each[3]
    set_meta('token', math.max(meta.token, token))
    set_meta('arrival', math.max(meta.arrival, ticket.arrival))
    local present = book.ticket(ticket.id)
    if present and present.at and token ~= 0 then
      rules.end_all({present}) -- granted by another server, which could not pass that on
      present = nil
    end
    if not present then
      load_by_terms(ticket.path, terms)
      local verdict = come_back(ticket, token)
      if verdict then
        lost[#lost + 1] = {ticket.id, verdict}
      else
        back[#back + 1], present = ticket, ticket
      end
    end
    -- Also if it was told before: that answer may have got lost.
    if present and present.at and present.token ~= 0 then
      requeued[#requeued + 1] = {present.id, present.token}
    end
  end
  if not book.is_settling then rules.serve_everyone(all_keys(), back) end
  return {
    'known', meta.epoch, lost, is_alone, meta.terms, clock_offset(a[10], a[11]), requeued,
  }
end

function operations.introduce(a)
  redis.call('HSET', leases_of(caller), CARD, a[1])
  return {}
end

-- Whatever is used lives on; of a namespace that nobody uses any more the limits are left.
local function refresh()
  set_meta('refreshed_at', book.now)
  local names = {'parked', 'children', 'insiders', 'loans', 'holders', 'gated', 'clocks'}
  for _, holder in ipairs(redis.call('ZRANGE', NS .. 'holders', 0, -1)) do
    names[#names + 1], names[#names + 2] = 'of:' .. holder, 'waiting:' .. holder
  end
  for _, key in ipairs(all_keys()) do
    if book.key(key).waiting > 0 then names[#names + 1] = 'line:' .. key end
  end
  for _, each in ipairs(names) do redis.call('EXPIRE', NS .. each, LIFE_SECONDS) end
  redis.call('EXPIRE', NS .. 'keys', COUNTS_LIFE_SECONDS)
  for _, each in ipairs({'meta', 'terms'}) do redis.call('PERSIST', NS .. each) end
end

-- An orphan cannot come back by itself: if it is on no list and was not buried, that was lost.
local function hear_from_orphan(holder, seconds)
  local is_listed = redis.call('ZSCORE', NS .. 'holders', holder)
  if not is_listed and redis.call('HEXISTS', leases_of(holder), CARD) == 1 then
    redis.call('ZADD', NS .. 'holders', book.now + seconds, holder)
    book.miss()
  else
    hear_from(holder, seconds)
  end
end

function operations.beat(a)
  hear_from(caller, a[1])
  for _, holder in ipairs(a[2]) do hear_from_orphan(holder, a[1]) end
  if book.now >= meta.refreshed_at + REFRESH_SECONDS then refresh() end
  local leases, waiting = leases_of(caller), waiting_of(caller)
  local kept = redis.call('HLEN', leases) - OTHER_FIELDS + redis.call('HLEN', waiting)
  return {kept >= a[3], meta.terms}
end

-- Idle keys are forgotten when so many new ones have come; they come back when asked for. Whoever
-- waits has asked before, and may come to them later.
local function drop_idle_keys(many)
  set_meta('new_keys', meta.new_keys + book.new_keys)
  if meta.new_keys <= many then return end
  set_meta('new_keys', 0)
  local needed = {}
  for _, ticket in ipairs(book.parked()) do
    for _, key in ipairs(ticket.path) do needed[key] = true end
  end
  for _, key in ipairs(all_keys()) do
    local state = book.key(key)
    book.forgive(state)
    local is_used = needed[key] or state.used + state.reserved + state.waiting + state.spent > 0
    if not is_used and not (state.cooldown and not state.cooldown.over) then
      redis.call('HDEL', NS .. 'keys', key)
      redis.call('SREM', NS .. 'gated', key)
      book.states[key], book.changed_states[key] = nil, nil
    end
  end
end

-- Go for good; whatever the caller had is given back.
function operations.leave()
  rules.end_all(book.tickets_of(caller))
  redis.call('ZREM', NS .. 'holders', caller)
  redis.call(
    'DEL', NS .. 'inbox:' .. caller, NS .. 'verdicts:' .. caller, leases_of(caller),
    waiting_of(caller))
  if redis.call('ZCARD', NS .. 'holders') == 0 then refresh() end
  return {}
end

-- Somebody on its machine has seen a holder end.
function operations.bury(a)
  if not redis.call('ZSCORE', NS .. 'holders', a[1]) then return {} end
  bury({a[1]}, 'its process has ended')
  return {}
end
