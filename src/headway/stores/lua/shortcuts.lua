-- The usual cases, without the rules: a request that finds room, or others who wait where nothing
-- but room is wanting; the end of a lease, and one who waited for that; and a beat. Each looks at
-- all there is to see before it writes anything, and leaves whatever is not usual to the rules.

local now = server_seconds()
-- The seal says which state of knowledge this is and by which terms, once it has settled.
local seal, arrival, token, version, refreshed_at = unpack(redis.call(
  'HMGET', NS .. 'meta', 'seal', 'arrival', 'token', 'version', 'refreshed_at'))

-- Tokens and arrivals grow with the clock too, so that they do so after a loss of data.
local function number_after(last) return math.max(math.floor(now * 1e6), last + 1) end

-- What changes of a ticket, and what does not.
local function ticket_text(changing, constant)
  return '\146' .. cmsgpack.pack(changing) .. constant
end

do

-- Fields of a key's state, as it is packed.
local CAP, PAUSED, BUDGET, USED, RESERVED = 1, 2, 3, 4, 5
local WAITING, PROMISED, HOLD, COOLDOWN = 6, 7, 9, 10

-- Add the states of these keys to the known ones; whether nothing but room can stand in the way.
local function read_plain(path, known)
  local missing = {}
  for _, key in ipairs(path) do
    if not known[key] then missing[#missing + 1] = key end
  end
  if #missing == 0 then return true end
  local texts = redis.call('HMGET', NS .. 'keys', unpack(missing))
  for i, key in ipairs(missing) do
    local state = texts[i] and cmsgpack.unpack(texts[i])
    if not state or state[PAUSED] or state[BUDGET] < UNCAPPED or state[COOLDOWN] then
      return false
    end
    known[key] = state
  end
  return true
end

local function is_full(state, weight)
  return state[USED] + state[RESERVED] + weight > state[CAP]
end

local function write_down(states, arrived, given)
  local fields = {}
  for key, state in pairs(states) do
    fields[#fields + 1], fields[#fields + 2] = key, cmsgpack.pack(state)
  end
  redis.call('HSET', NS .. 'keys', unpack(fields))
  redis.call('HSET', NS .. 'meta', 'arrival', arrived, 'token', given, 'version', version + 1)
end

-- How long until the first of the others would be taken for dead; false if there are no others,
-- and none if somebody may be dead by now.
local function first_silence()
  local first = redis.call('ZRANGE', NS .. 'holders', 0, 1, 'WITHSCORES')
  if not first[2] or tonumber(first[2]) <= now then return nil end
  local expiry = first[1] ~= caller and first[2] or first[4]
  return expiry and tostring(expiry - now) or false
end

-- Whether the caller is known, speaks on its newest connection, and has this lease or not.
local function is_heard(id, has_lease)
  local card, newest, lease = unpack(
    redis.call('HMGET', leases_of(caller), CARD, NEWEST, id))
  return card and newest == connection and (lease ~= false) == has_lease
end

local shortcuts = {}

local function park(id, weight, rank, arrived, constant, path, last, states)
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
  local waiting = waiting_of(caller)
  if redis.call('HSETNX', waiting, id, ticket_text(changing, constant)) == 0 then return nil end
  redis.call('EXPIRE', waiting, LIFE_SECONDS)
  redis.call('ZADD', line, rank, id)
  redis.call('EXPIRE', line, LIFE_SECONDS)
  redis.call('ZADD', NS .. 'parked', rank, id)
  states[key][WAITING] = states[key][WAITING] + 1
  write_down(changed, arrived, token)
  local is_to_watch = redis.call('ZCARD', NS .. 'holders') <= FEW_HOLDERS
  return {'waiting', 0, key, arrived, rank, now, is_to_watch and silence}
end

function shortcuts.request(id, weight, advance, most_waiting, constant, ...)
  local path, states = {...}, {}
  weight, most_waiting = tonumber(weight), tonumber(most_waiting)
  if not is_heard(id, false) or not read_plain(path, states) then return nil end
  local arrived, stop = number_after(arrival), nil
  local rank = arrived - advance
  for i, key in ipairs(path) do
    local state = states[key]
    if weight > state[CAP] then return nil end
    if not stop and state[CAP] < UNCAPPED and (state[WAITING] > 0 or is_full(state, weight)) then
      stop = i
    end
  end
  if stop then
    local state = states[path[stop]]
    if state[WAITING] >= most_waiting then return nil end
    if not is_full(state, weight) then
      local head = redis.call('ZRANGE', NS .. 'line:' .. path[stop], 0, 0, 'WITHSCORES')
      if not head[2] or tonumber(head[2]) >= rank then return nil end
    end
    return park(id, weight, rank, arrived, constant, path, stop, states)
  end
  local given = number_after(token)
  local changing = {arrived, rank, now, false, {}, {}, given}
  redis.call('HSET', leases_of(caller), id, ticket_text(changing, constant))
  for _, state in pairs(states) do state[USED] = state[USED] + weight end
  write_down(states, arrived, given)
  return {'granted', given, false, arrived, rank, now, false}
end

-- The first in line, if there is room for it here and all the way on; false if there is none here.
local function next_in(key, states)
  local state = states[key]
  local id = redis.call('ZRANGE', NS .. 'line:' .. key, 0, 0)[1]
  local text = id and redis.call('HGET', waiting_of(holder_of(id)), id)
  if not text or first_silence() == nil then return nil end
  local changing, constant = unpack(cmsgpack.unpack(text))
  local path, weight = constant[2], constant[4]
  if is_full(state, weight) then return false end
  if not read_plain(path, states) then return nil end
  local has_passed = true
  for _, each in ipairs(path) do
    if each == key then
      has_passed = false
    elseif not has_passed and states[each][CAP] < UNCAPPED then
      if states[each][WAITING] > 0 or is_full(states[each], weight) then return nil end
    end
  end
  return {id = id, path = path, weight = weight, changing = changing, constant = constant}
end

local function let_in(ticket, key, states, given)
  for _, each in ipairs(ticket.path) do
    states[each][USED] = states[each][USED] + ticket.weight
  end
  for _, each in ipairs(ticket.changing[5]) do
    local state = states[each]
    state[RESERVED], state[PROMISED] = state[RESERVED] - ticket.weight, state[PROMISED] - 1
  end
  states[key][WAITING] = states[key][WAITING] - 1
  local c = ticket.changing
  ticket.changing = {c[1], c[2], now, false, {}, {}, given}
end

local function move_in(ticket, key)
  local holder, id = holder_of(ticket.id), ticket.id
  redis.call('ZREM', NS .. 'line:' .. key, id)
  redis.call('ZREM', NS .. 'parked', id)
  redis.call('HDEL', waiting_of(holder), id)
  redis.call('HSET', leases_of(holder), id,
    ticket_text(ticket.changing, cmsgpack.pack(ticket.constant)))
end

function shortcuts.release(id, weight, held_seconds, ...)
  local path, states, key = {...}, {}, nil
  if not is_heard(id, true) or not read_plain(path, states) then return nil end
  if redis.call('EXISTS', NS .. 'loans', NS .. 'children') > 0 then return nil end
  for _, each in ipairs(path) do
    local state = states[each]
    local usual = state[HOLD]
    state[USED] = state[USED] - weight
    state[HOLD] = usual and usual + (held_seconds - usual) / 5 or tonumber(held_seconds)
    if state[WAITING] > 0 then
      if key then return nil end
      key = each
    end
  end
  local given, heir = token, false
  if key then
    heir = next_in(key, states)
    if heir == nil then return nil end
    if heir then
      given = number_after(token)
      let_in(heir, key, states, given)
      -- Room for one more is for the rules to give.
      if states[key][WAITING] > 0 and not is_full(states[key], 1) then return nil end
    end
  end
  redis.call('HDEL', leases_of(caller), id) -- first: it needs no memory
  if heir then move_in(heir, key) end
  write_down(states, arrival, given)
  if not heir then return {'released'} end
  local news = {heir.id, {'granted', given}}
  if holder_of(heir.id) == caller then return {'released', news} end
  local inbox = NS .. 'inbox:' .. holder_of(heir.id)
  redis.call('RPUSH', inbox, cmsgpack.pack(news))
  redis.call('PEXPIRE', inbox, INBOX_MS)
  return {'released'}
end

function shortcuts.beat(lease_seconds)
  if now >= refreshed_at + REFRESH_SECONDS or first_silence() == nil then return nil end
  redis.call('DEL', NS .. 'nothing') -- then the rest needs no memory
  local is_known = redis.call('ZADD', NS .. 'holders', 'XX', 'CH', now + lease_seconds, caller) == 1
  return is_known and {} or nil
end

-- Nothing of the terms is asked for by a beat.
local function is_sealed()
  if name ~= 'beat' then return seal == ARGV[4] end
  return seal and string.match(seal, '^.* ') == string.match(ARGV[4], '^.* ')
end

if #ARGV > 5 and is_sealed() then
  local answer = shortcuts[name](unpack(ARGV, 6))
  if answer then return cmsgpack.pack(answer) end
end

end
