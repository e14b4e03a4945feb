-- Waits that can never end, because those in the way wait themselves: as circles.py, function for
-- function. The tests hold both against one model.

local circles = {}
-- So many are looked at.
local MOST = 256
-- So many of those who stand in front of someone at a key.
local MOST_IN_LINE = 64

-- The keys that a waiting ticket has still to pass.
local function ahead(ticket)
  if not ticket.at then return ticket.path end
  local found = {ticket.at}
  append(found, rest(ticket.path, ticket.at))
  return found
end

-- The keys that one who waits as well has, or gets before the ticket.
local function had_before(other, ticket)
  local found = {}
  append(found, other.reserved)
  if other.at == ticket.at and before(other, ticket) then found[#found + 1] = other.at end
  return found
end

local stuck = {}
stuck.__index = stuck

local function take_slot(self, key, id, weight)
  self.slots[key] = self.slots[key] or {}
  self.slots[key][id] = weight
end

-- Count the slot that a ticket has on a key: while it is on loan, the lender's.
local function take(self, ticket, key)
  local owner = ticket
  while owner.borrowed[key] do
    local lender = book.lease(owner.borrowed[key])
    if not lender then break end
    owner = lender
  end
  take_slot(self, key, owner.id, owner.weight)
end

-- Take all that those have who may be stuck for what will never become free.
local function freeze(self)
  self.frozen, self.slots = {}, {}
  for _, node in ipairs(self.nodes) do
    local ticket = node.ticket
    self.frozen[ticket.id] = true
    for _, key in ipairs(ticket.reserved) do take_slot(self, key, ticket.id, ticket.weight) end
    for key in pairs(ticket.borrowed) do
      if key ~= ticket.at then take(self, ticket, key) end
    end
    for _, lease in ipairs(node.leases) do
      self.frozen[lease.id] = true
      local has = lease.at and had_before(lease, ticket) or lease.path
      for _, key in ipairs(has) do take(self, lease, key) end
    end
  end
end

-- Whether an ancestor's slot carries the ticket, now or when a sibling brings it back.
function stuck:will_borrow(ticket, key)
  local lender = lending.lender(ticket, key)
  if not lender or lender.weight < ticket.weight then return false end
  local borrower = book.borrower(lender.id, key)
  while borrower do
    if self.frozen[borrower] then return false end
    borrower = book.borrower(borrower, key)
  end
  return true
end

-- Who tries the key and will never be answered, if this one waits for that.
function stuck:probe(ticket, key)
  local cooldown = book.key(key).cooldown
  local probe = cooldown and cooldown.probe
  if not probe or not self.frozen[probe] then return nil end
  local goes_on = ticket.borrowed[key] or self:will_borrow(ticket, key)
  if stands_inside(ticket, probe) and goes_on then return nil end
  return probe
end

-- Whether there will be room, also for a heavy one that stands in front of it.
function stuck:has_room(ticket, key)
  local state, taken = book.key(key), 0
  for _, weight in pairs(self.slots[key]) do taken = taken + weight end
  if state.cap >= UNCAPPED then return true end
  if taken + ticket.weight > state.cap then return false end
  if key ~= ticket.at then return true end
  for _, other in ipairs(self:line(key)) do
    if taken + other.weight > state.cap and not other.timed and before(other, ticket)
      and not self:will_borrow(other, key) then return false end
  end
  return true
end

function stuck:line(key)
  self.lines[key] = self.lines[key] or book.line(key, MOST_IN_LINE)
  return self.lines[key]
end

-- The first key where a ticket would wait for ever.
function stuck:blocks(ticket)
  for _, key in ipairs(ahead(ticket)) do
    if self:probe(ticket, key) then return key end
    if self.slots[key] and not ticket.borrowed[key] then
      if not self:has_room(ticket, key) and not self:will_borrow(ticket, key) then return key end
    end
  end
end

-- Which of these tickets can never go on, and at which key each of them.
local function find_stuck(nodes)
  local self = setmetatable({nodes = nodes, at = {}, lines = {}}, stuck)
  while true do
    freeze(self)
    self.at = {}
    local kept = {}
    for _, node in ipairs(self.nodes) do
      local key = self:blocks(node.ticket)
      if key then
        self.at[node.ticket.id] = key
        kept[#kept + 1] = node
      end
    end
    if #kept == #self.nodes then return self end
    self.nodes = kept
  end
end

-- What to tell one of them, if it is stuck: the key, and the leases that block it.
function stuck:refusal(ticket)
  local key = self.at[ticket.id]
  if not key then return nil end
  local probe, held_by = self:probe(ticket, key), {}
  if probe then return {'refused', 'deadlock', key, {probe}} end
  for id in pairs(self.slots[key] or {}) do held_by[#held_by + 1] = id end
  table.sort(held_by)
  return {'refused', 'deadlock', key, held_by}
end

-- What cannot end while it waits; on a loop that it blocks, also who is in front of it.
local function leases_within(ticket)
  local found = {}
  for _, id in ipairs(ticket.within) do found[#found + 1] = book.ticket(id) end
  return found
end

local function own_leases(ticket)
  local found, seen = {}, {}
  local function take_all(leases)
    for _, lease in ipairs(leases) do
      if not seen[lease.id] then found[#found + 1], seen[lease.id] = lease, true end
    end
  end
  take_all(lending.ancestors(ticket))
  for _, lease in ipairs(leases_within(ticket)) do
    take_all({lease})
    take_all(lending.ancestors(lease))
  end
  return found
end

local function has_reservations_ahead(nodes)
  for _, node in ipairs(nodes) do
    for _, key in ipairs(ahead(node.ticket)) do
      if book.key(key).reserved > 0 then return true end
    end
  end
  return false
end

-- Those who do not give up by themselves, and have something that others may wait for.
local function others(asking)
  local nodes, known = {}, {}
  if asking then nodes[1], known[asking.id] = {ticket = asking, leases = {}}, true end
  for _, ticket in ipairs(book.parked_insiders(MOST)) do
    if not ticket.timed and not known[ticket.id] then
      nodes[#nodes + 1] = {ticket = ticket, leases = leases_within(ticket)}
      known[ticket.id] = true
    end
  end
  if not has_reservations_ahead(nodes) then return nodes end
  for _, ticket in ipairs(book.parked_reserving(MOST)) do
    if not ticket.timed and not known[ticket.id] then
      nodes[#nodes + 1] = {ticket = ticket, leases = {}}
    end
  end
  return nodes
end

-- Whether one who waits has anything at all that the ticket may wait for. Mostly nobody has.
local function is_in_question(ticket, own)
  local keys, has_reservations = {}, false
  for _, key in ipairs(ahead(ticket)) do
    keys[key], has_reservations = true, has_reservations or book.key(key).reserved > 0
  end
  for _, other in ipairs(has_reservations and book.parked_reserving(MOST) or {}) do
    for _, key in ipairs(ahead(other)) do keys[key] = true end
  end
  local limited = {}
  for key in pairs(keys) do
    local state = book.key(key)
    if state.cooldown and state.cooldown.probe then return true end
    if state.cap < UNCAPPED then limited[key] = true end
  end
  for _, lease in ipairs(own) do
    for _, key in ipairs(lease.path) do
      if limited[key] then return true end
    end
  end
  return next(limited) ~= nil and book.insiders_have(limited, MOST)
end

-- Refuse a ticket that has just come to wait, if that would never end.
function circles.refusal(ticket)
  local own = own_leases(ticket)
  if #own == 0 or not is_in_question(ticket, own) then return nil end
  local nodes = others(ticket)
  nodes[1].leases = own
  return find_stuck(nodes):refusal(ticket)
end

-- Whether it could go on if it had nothing itself that others wait for.
local function is_part(ticket, nodes)
  local kept = {}
  for _, node in ipairs(nodes) do
    if node.ticket ~= ticket then kept[#kept + 1] = node end
  end
  return not find_stuck(kept):blocks(ticket)
end

-- Of those who can only wait for each other, the last to come; none if all can go on.
function circles.victim()
  if redis.call('EXISTS', NS .. 'insiders') == 0 then return nil end
  local nodes = others()
  local found, inside = find_stuck(nodes), {}
  for _, node in ipairs(nodes) do
    if found.at[node.ticket.id] and #node.leases > 0 then inside[#inside + 1] = node.ticket end
  end
  if #inside == 0 then return nil end
  table.sort(inside, function(one, other) return before(other, one) end)
  for _, ticket in ipairs(inside) do
    if is_part(ticket, nodes) then return ticket, found:refusal(ticket) end
  end
  return inside[1], found:refusal(inside[1])
end
