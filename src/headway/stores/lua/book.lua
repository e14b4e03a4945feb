-- What the rules read and write, kept in Redis. States of keys and tickets are read once in an
-- operation and written back at its end; lines, loans and the rest are written as they change.

local book = {
  now = now, asking = nil, told = {}, stirred = {},
  -- Whether the answer says when the time comes for something.
  caller_knows_time = false,
  new_keys = 0, states = {}, changed_states = {}, tickets = {}, changed_tickets = {}, struck = {},
}
-- -- keys ------------------------------------------------------------------------------------

local function new_state(key, cap, paused, budget)
  return {
    key = key, cap = cap, paused = paused, budget = budget, used = 0, reserved = 0, waiting = 0,
    promised = 0, spent = 0, hold = nil, cooldown = nil,
  }
end

-- A key of which the server has not been told yet what the present terms make of it: it has room
-- for nobody until then.
local UNKNOWN_CAP = 0

function book.close(state)
  state.cap = UNKNOWN_CAP
  book.change(state)
end

-- Read many at once; those that nobody has asked for yet are made by the caller's terms.
function book.load(path, terms)
  local missing = {}
  for i, key in ipairs(path) do
    if not book.states[key] then missing[#missing + 1] = i end
  end
  if #missing == 0 then return end
  local names = {}
  for n, i in ipairs(missing) do names[n] = path[i] end
  local texts = {}
  for first = 1, #names, MOST_ARGUMENTS do
    local last = math.min(#names, first + MOST_ARGUMENTS - 1)
    append(texts, redis.call('HMGET', NS .. 'keys', unpack(names, first, last)))
  end
  for n, i in ipairs(missing) do
    local key, text = path[i], texts[n]
    if text then
      book.states[key] = unpacked_state(key, text)
    elseif terms then
      local t = terms[i]
      book.states[key] = new_state(key, t[1], t[2], t[3])
      book.change(book.states[key])
      book.new_keys = book.new_keys + 1
    end
  end
end

function book.key(key)
  local state = book.states[key]
  if not state then
    book.load({key})
    state = book.states[key]
  end
  return state
end

function book.change(state) book.changed_states[state.key] = state end

local function gate(state)
  return (state.paused and PAUSED or 0) + (state.budget < UNCAPPED and METERED or 0)
    + (state.cooldown and COOLING or 0)
end

local function is_open(state)
  return state.cap >= UNCAPPED and not state.paused and state.budget >= UNCAPPED
    and not state.cooldown
end

local function has_room(state, weight)
  return not state.paused and state.used + state.reserved + weight <= state.cap
end

local function within_budget(state) return state.spent + state.promised < state.budget end

local function admits_probe(cooldown) return cooldown.over and not cooldown.probe end

local function admits_request(state)
  if state.cooldown and not admits_probe(state.cooldown) then return false end
  return within_budget(state)
end

local function admits(state, weight) return has_room(state, weight) and admits_request(state) end

local function obstacle(state)
  if state.paused then return 'paused' end
  if state.cooldown and not admits_probe(state.cooldown) then return 'cooling' end
  return within_budget(state) and 'full' or 'budget'
end

function book.learn(state, held_seconds)
  local usual = state.hold
  state.hold = usual and usual + (held_seconds - usual) / 5 or held_seconds
  book.change(state)
end

function book.charge(state)
  local admitted = NS .. 'admitted:' .. state.key
  redis.call('RPUSH', admitted, string.format('%.0f', math.ceil(book.now * 1000)))
  redis.call('PEXPIRE', admitted, 2 * WINDOW_MS)
  state.spent = state.spent + 1
  book.change(state)
end

function book.forgive(state)
  local admitted = NS .. 'admitted:' .. state.key
  local oldest = math.ceil(book.now * 1000) - WINDOW_MS
  local first = redis.call('LINDEX', admitted, 0)
  -- One that is long to come was noted by a server with another clock.
  while first and (tonumber(first) <= oldest or tonumber(first) > oldest + 2 * WINDOW_MS) do
    redis.call('LPOP', admitted)
    first = redis.call('LINDEX', admitted, 0)
  end
  local spent = redis.call('LLEN', admitted)
  if spent ~= state.spent then
    state.spent = spent
    book.change(state)
  end
end

-- -- tickets ---------------------------------------------------------------------------------

-- Leases and waiting tickets are kept apart: who asks for the leases must not read all who wait.
local function find(id, place_of)
  if book.struck[id] then return nil end
  local known = book.tickets[id]
  if known then return known end
  local kept_in = place_of(holder_of(id))
  local text = redis.call('HGET', kept_in, id)
  if not text then return nil end
  book.tickets[id] = unpacked_ticket(id, text)
  book.tickets[id].kept_in = kept_in
  return book.tickets[id]
end

function book.ticket(id) return find(id, leases_of) or find(id, waiting_of) end

function book.lease(id)
  local ticket = find(id, leases_of)
  if ticket and not ticket.at and ticket.token ~= 0 then return ticket end
end

function book.keep(ticket)
  book.tickets[ticket.id], book.changed_tickets[ticket.id] = ticket, ticket
  book.struck[ticket.id] = nil
end

local function before(one, other)
  if one.rank ~= other.rank then return one.rank < other.rank end
  return one.id < other.id
end

-- The server has thrown away, or lost, a row that another one speaks of. What was found is served
-- by, and from the next operation on nothing is granted until everyone has said what it holds.
function book.miss() meta.has_holes = true end

function book.head(key)
  local line = NS .. 'line:' .. key
  local id = redis.call('ZRANGE', line, 0, 0)[1]
  local head = id and find(id, waiting_of)
  local is_whole_line = redis.call('ZCARD', line) == book.key(key).waiting
  if not is_whole_line or (id and not head) then book.miss() end
  return head
end

function book.park(ticket)
  redis.call('ZADD', NS .. 'line:' .. ticket.at, ticket.rank, ticket.id)
  redis.call('EXPIRE', NS .. 'line:' .. ticket.at, LIFE_SECONDS)
  redis.call('ZADD', NS .. 'parked', ticket.rank, ticket.id)
  redis.call('EXPIRE', NS .. 'parked', LIFE_SECONDS)
  if #ticket.parents > 0 then
    redis.call('ZADD', NS .. 'children', ticket.rank, ticket.id)
    redis.call('EXPIRE', NS .. 'children', LIFE_SECONDS)
  end
  if #ticket.within > 0 then
    redis.call('ZADD', NS .. 'insiders', ticket.rank, ticket.id)
    redis.call('EXPIRE', NS .. 'insiders', LIFE_SECONDS)
  end
  book.keep(ticket)
end

function book.unpark(ticket)
  redis.call('ZREM', NS .. 'line:' .. ticket.at, ticket.id)
  ticket.at = nil
  book.keep(ticket)
end

local function leave_lines(ticket)
  redis.call('ZREM', NS .. 'parked', ticket.id)
  if #ticket.parents > 0 then redis.call('ZREM', NS .. 'children', ticket.id) end
  if #ticket.within > 0 then redis.call('ZREM', NS .. 'insiders', ticket.id) end
end

function book.grant(ticket)
  ticket.token, ticket.since = book.next_token(), book.now
  leave_lines(ticket)
  book.keep(ticket)
end

function book.strike(ticket)
  leave_lines(ticket)
  if ticket.kept_in then redis.call('HDEL', ticket.kept_in, ticket.id) end
  book.tickets[ticket.id], book.changed_tickets[ticket.id] = nil, nil
  book.struck[ticket.id] = true
end

local function in_line(ids)
  local found = {}
  for _, id in ipairs(ids) do
    local ticket = find(id, waiting_of)
    if not ticket then book.miss() end
    found[#found + 1] = ticket
  end
  return found
end

function book.line(key, most) return in_line(redis.call('ZRANGE', NS .. 'line:' .. key, 0, most - 1)) end

function book.parked() return in_line(redis.call('ZRANGE', NS .. 'parked', 0, -1)) end

function book.parked_children()
  return in_line(redis.call('ZRANGE', NS .. 'children', 0, -1))
end

function book.parked_insiders(most)
  return in_line(redis.call('ZRANGE', NS .. 'insiders', 0, most - 1))
end

-- The rows of these tickets, those of each holder with one command.
local function rows_of(ids, place_of)
  local of, found = {}, {}
  for _, id in ipairs(ids) do
    local place = place_of(holder_of(id))
    of[place] = of[place] or {}
    table.insert(of[place], id)
  end
  for place, mine in pairs(of) do
    for i = 1, #mine, MOST_ARGUMENTS do
      local last = math.min(i + MOST_ARGUMENTS - 1, #mine)
      for _, text in ipairs(redis.call('HMGET', place, unpack(mine, i, last))) do
        if text then found[#found + 1] = cmsgpack.unpack(text)[2] end
      end
    end
  end
  return found
end

-- Whether a lease that one of those was asked from within may count on these keys. Many are looked
-- at, and seldom is there one, so no tickets are made of them.
function book.insiders_have(keys, most)
  -- On loan it may be the slot of a lease that nobody waits in.
  for _, loan in ipairs(redis.call('HKEYS', NS .. 'loans')) do
    if keys[string.match(loan, ' (.*)')] then return true end
  end
  local inside, seen = {}, {}
  for _, row in ipairs(rows_of(redis.call('ZRANGE', NS .. 'insiders', 0, most - 1), waiting_of)) do
    for _, id in ipairs((within(row[7]))) do
      if not seen[id] then inside[#inside + 1], seen[id] = id, true end
    end
  end
  for _, place_of in ipairs({leases_of, waiting_of}) do
    for _, row in ipairs(rows_of(inside, place_of)) do
      for _, key in ipairs(row[2]) do
        if keys[key] then return true end
      end
    end
  end
  return false
end

function book.parked_reserving(most)
  local found = {}
  for _, ticket in ipairs(in_line(redis.call('ZRANGE', NS .. 'parked', 0, most - 1))) do
    if #ticket.reserved > 0 then found[#found + 1] = ticket end
  end
  return found
end

-- The best place first: all that a holder had is given back in one fixed order.
function book.tickets_of(holder)
  local found = in_line(redis.call('HKEYS', waiting_of(holder)))
  for _, id in ipairs(redis.call('HKEYS', leases_of(holder))) do
    if id ~= CARD and id ~= NEWEST then found[#found + 1] = find(id, leases_of) end
  end
  table.sort(found, before)
  return found
end

-- -- loans -----------------------------------------------------------------------------------

function book.borrower(lender, key)
  return redis.call('HGET', NS .. 'loans', lender .. ' ' .. key) or nil
end

function book.lend(lender, key, borrower)
  redis.call('HSET', NS .. 'loans', lender .. ' ' .. key, borrower)
  redis.call('EXPIRE', NS .. 'loans', LIFE_SECONDS)
end

function book.end_loan(lender, key) redis.call('HDEL', NS .. 'loans', lender .. ' ' .. key) end

-- -- what others are told ----------------------------------------------------------------------

function book.tell(ticket, decision)
  if ticket.id ~= book.asking then book.told[#book.told + 1] = {ticket.id, decision} end
end

function book.stir(key) book.stirred[key] = true end

-- -- the end of an operation -------------------------------------------------------------------

local function write_states()
  local pairs_ = {}
  for key, state in pairs(book.changed_states) do
    pairs_[#pairs_ + 1], pairs_[#pairs_ + 2] = key, packed_state(state)
    local gated = gate(state) > PAUSED
    if gated ~= (state.was_gated or false) then
      redis.call(gated and 'SADD' or 'SREM', NS .. 'gated', key)
      redis.call('EXPIRE', NS .. 'gated', LIFE_SECONDS)
    end
  end
  for first = 1, #pairs_, MOST_ARGUMENTS do
    local last = math.min(#pairs_, first + MOST_ARGUMENTS - 1)
    redis.call('HSET', NS .. 'keys', unpack(pairs_, first, last))
  end
  return #pairs_ > 0
end

local function write_tickets()
  local changed = false
  for id, ticket in pairs(book.changed_tickets) do
    changed = true
    local kept_in = (ticket.at and waiting_of or leases_of)(holder_of(id))
    if ticket.kept_in and ticket.kept_in ~= kept_in then
      redis.call('HDEL', ticket.kept_in, id)
    end
    redis.call('HSET', kept_in, id, packed_ticket(ticket))
    if ticket.at then redis.call('EXPIRE', kept_in, LIFE_SECONDS) end
  end
  return changed
end

-- A grant can be seen on the book by whoever missed the message; other ends are kept for them.
local function send(holder, id, decision)
  local message = cmsgpack.pack({id, decision})
  local inbox = NS .. 'inbox:' .. holder
  redis.call('RPUSH', inbox, message)
  redis.call('PEXPIRE', inbox, INBOX_MS)
  if decision[1] ~= 'granted' then
    redis.call('HSET', NS .. 'verdicts:' .. holder, id, message)
    redis.call('PEXPIRE', NS .. 'verdicts:' .. holder, INBOX_MS)
  end
end

-- Write everything down; the decisions about the caller's own tickets are for its answer.
function book.flush(caller)
  local changed = write_states()
  changed = write_tickets() or changed
  local news, called = {}, {[caller] = book.caller_knows_time}
  for _, each in ipairs(book.told) do
    local id, decision = each[1], each[2]
    if holder_of(id) == caller then
      news[#news + 1] = each
    else
      send(holder_of(id), id, decision)
    end
  end
  for key in pairs(book.stirred) do
    local state = book.states[key]
    local head = state.waiting > 0 and gate(state) > PAUSED and book.head(key)
    local holder = head and holder_of(head.id)
    if holder and not called[holder] then
      called[holder] = true
      redis.call('RPUSH', NS .. 'inbox:' .. holder, cmsgpack.pack({'', {'look'}}))
      redis.call('PEXPIRE', NS .. 'inbox:' .. holder, INBOX_MS)
    end
  end
  if changed or next(book.struck) then set_meta('version', meta.version + 1) end
  return news
end
