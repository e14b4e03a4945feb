-- What is kept, and how it is written down. States of keys and tickets are packed as lists.

local PAUSED, METERED, COOLING = 1, 2, 4
local WINDOW_MS = 61000
-- Words among the ids of leases that a ticket waits inside of.
local AROUND, TIMED = '~', '!'
-- So many a command gets at once; Lua passes on some thousands. Even: names go with values.
local MOST_ARGUMENTS = 1000

local function contains(list, value)
  for _, each in ipairs(list) do
    if each == value then return true end
  end
  return false
end

local function removed(list, value)
  local kept = {}
  for _, each in ipairs(list) do
    if each ~= value then kept[#kept + 1] = each end
  end
  return kept
end

local function append(list, more)
  for _, each in ipairs(more) do list[#list + 1] = each end
end

local function index_of(list, value)
  for i, each in ipairs(list) do
    if each == value then return i end
  end
end

local function job_of(id) return string.match(id, '%-job(%d+)$') end

local function packed_state(state)
  local c = state.cooldown
  return cmsgpack.pack({
    state.cap, state.paused, state.budget, state.used, state.reserved, state.waiting,
    state.promised, state.spent, state.hold or false,
    c and {c.since, c['until'], c.reason, c.over, c.probe or false} or false,
  })
end

local function unpacked_state(key, text)
  local f = cmsgpack.unpack(text)
  local c = f[10]
  return {
    key = key, cap = f[1], paused = f[2], budget = f[3], used = f[4], reserved = f[5],
    waiting = f[6], promised = f[7], spent = f[8], hold = f[9] or nil,
    cooldown = c and {
      since = c[1], ['until'] = c[2], reason = c[3], over = c[4], probe = c[5] or nil,
    } or nil,
    was_gated = c ~= false or f[3] < UNCAPPED,
  }
end

local function packed_ticket(t)
  local borrowed = {}
  for key, lender in pairs(t.borrowed) do
    borrowed[#borrowed + 1] = key
    borrowed[#borrowed + 1] = lender
  end
  return ticket_text(
    {t.arrival, t.rank, t.since, t.at or false, t.reserved, borrowed, t.token},
    cmsgpack.pack({t.keys, t.path, t.task, t.weight, t.priority, t.parents, t.surroundings}))
end

-- Of what a ticket waits inside of: the leases of its very caller, and whether it gives up.
local function within(surroundings)
  local found, timed = {}, false
  for _, word in ipairs(surroundings) do
    if word == TIMED then
      timed = true
    elseif string.sub(word, 1, 1) ~= AROUND then
      found[#found + 1] = word
    end
  end
  return found, timed
end

local function new_ticket(id, constant, arrival, rank, since)
  local own, timed = within(constant[7])
  return {
    id = id, keys = constant[1], path = constant[2], task = constant[3], weight = constant[4],
    priority = constant[5], parents = constant[6], surroundings = constant[7], within = own,
    timed = timed,
    arrival = arrival, rank = rank, since = since, reserved = {}, borrowed = {}, token = 0,
  }
end

local function unpacked_ticket(id, text)
  local changing, constant = unpack(cmsgpack.unpack(text))
  local ticket = new_ticket(id, constant, changing[1], changing[2], changing[3])
  local borrowed = changing[6]
  for i = 1, #borrowed, 2 do ticket.borrowed[borrowed[i]] = borrowed[i + 1] end
  ticket.at, ticket.reserved, ticket.token = changing[4] or nil, changing[5], changing[7]
  return ticket
end
