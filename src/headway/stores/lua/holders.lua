-- Who is there: coming, being heard, and going.

-- Clocks that seem to be apart by more microseconds than before were set.
local CLOCK_SLACK = 5e6

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

-- This server lost what it knew, or may have, or others have gone on elsewhere meanwhile: nothing
-- is granted until everyone had the time to come back, and until then nobody is taken for dead.
local function begin_anew(a)
  local server, lease_seconds, new_epoch, uptime = a[1], a[3], a[4], a[8]
  local present, callers = number_of(meta.epoch), number_of(arguments[1])
  local is_left_behind = arguments[1] ~= meta.epoch and callers >= present
  -- An hour after it was promoted, a server without replicas forgets that it was.
  if server == string.match(meta.server, '^[^.]*') .. '.-1' then set_meta('server', server) end
  if meta.epoch ~= '' and meta.server == server and not is_left_behind then return end
  -- If nobody has ever been here, only a server that was just started can have lost something.
  local is_first = meta.epoch == '' and arguments[1] == ''
  local seconds = is_first and math.max(0, lease_seconds - uptime) or lease_seconds
  set_meta('epoch', string.format('%d.%s', math.max(present, callers) + 1, new_epoch))
  set_meta('server', server)
  set_meta('settles_at', now + seconds)
  set_meta('settled', seconds == 0)
  local until_then = string.format('%.17g', meta.settles_at)
  for _, holder in ipairs(redis.call('ZRANGE', NS .. 'holders', 0, -1)) do
    redis.call('ZADD', NS .. 'holders', 'XX', 'GT', until_then, holder)
  end
end

-- Take back onto the book what the caller says of one of its tickets; or how that has ended. In a
-- namespace that has lost what it knew leases are believed until it has settled; afterwards
-- others may have their slots.
local function come_back(ticket, token)
  local verdict = verdict_on(ticket.id)
  if verdict then return verdict end
  if token == 0 then
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

-- Say what the caller holds and waits for, and nothing else; but for what it is just asking for or
-- giving back, which may be either.
function operations.announce(a)
  local card, lease_seconds = a[2], a[3]
  if a[6] and redis.call('EXISTS', NS .. 'terms') == 0 then
    redis.call('SET', NS .. 'terms', a[6], 'EX', LIFE_SECONDS)
    set_meta('terms', math.max(meta.terms, a[7]) + 1)
  end
  local is_alone = redis.call('ZCARD', NS .. 'holders') == 0
  redis.call('ZADD', NS .. 'holders', book.now + lease_seconds, caller)
  redis.call('EXPIRE', NS .. 'holders', LIFE_SECONDS)
  redis.call('HSET', leases_of(caller), CARD, card)
  redis.call('EXPIRE', leases_of(caller), LIFE_SECONDS)
  local known, lost, back = {}, {}, {}
  for _, each in ipairs(a[5]) do known[each[1][1]] = true end
  for _, id in ipairs(a[11]) do known[id] = true end
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
      book.load(ticket.path, terms)
      local verdict = come_back(ticket, token)
      if verdict then
        lost[#lost + 1] = {ticket.id, verdict}
      else
        back[#back + 1] = ticket
      end
    end
  end
  if not book.is_settling then rules.serve_everyone(all_keys(), back) end
  return {meta.epoch, lost, is_alone, meta.terms, clock_offset(a[9], a[10])}
end

function operations.introduce(a)
  redis.call('HSET', leases_of(caller), CARD, a[1])
  return {}
end

-- Whatever is used lives on; a namespace that nobody uses any more goes by itself.
local function refresh()
  set_meta('refreshed_at', book.now)
  local names = {
    'meta', 'keys', 'parked', 'children', 'loans', 'holders', 'gated', 'terms', 'clocks',
  }
  for _, holder in ipairs(redis.call('ZRANGE', NS .. 'holders', 0, -1)) do
    names[#names + 1], names[#names + 2] = 'of:' .. holder, 'waiting:' .. holder
  end
  for _, key in ipairs(all_keys()) do
    if book.key(key).waiting > 0 then names[#names + 1] = 'line:' .. key end
  end
  for _, each in ipairs(names) do redis.call('EXPIRE', NS .. each, LIFE_SECONDS) end
end

function operations.beat(a)
  for _, holder in ipairs({caller, unpack(a[2])}) do hear_from(holder, a[1]) end
  if book.now >= meta.refreshed_at + REFRESH_SECONDS then refresh() end
  return {}
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
