-- What an operation sets free, loans, and who tries a key first: as given_back.py, lending.py and
-- probing.py. The tests hold both against one model.

local rules = {max_waiting = 0, max_cooling = 0}

local function given_back() return {keys = {}, loans = {}, opened = {}} end

local function add(all, more)
  append(all.keys, more.keys)
  append(all.loans, more.loans)
  for key in pairs(more.opened) do all.opened[key] = true end
  return all
end

local function opened(keys)
  local found = given_back()
  for _, key in ipairs(keys) do
    found.keys[#found.keys + 1] = key
    found.opened[key] = true
  end
  return found
end

-- The part of a path that comes after a key, and the part before it.
local function rest(path, key)
  local found = {}
  for i = index_of(path, key) + 1, #path do found[#found + 1] = path[i] end
  return found
end

local function passed(ticket)
  local found = {}
  for i = 1, index_of(ticket.path, ticket.at) - 1 do found[#found + 1] = ticket.path[i] end
  return found
end

-- -- loans -----------------------------------------------------------------------------------

local lending = {}

-- The leases a ticket stands inside of, the nearest first; those that ended are passed.
function lending.ancestors(ticket)
  local found, seen, ahead = {}, {[ticket.id] = true}, {}
  append(ahead, ticket.parents)
  while #ahead > 0 do
    local parent = table.remove(ahead, 1)
    local lease = not seen[parent] and book.lease(parent)
    seen[parent] = true
    if lease then
      found[#found + 1] = lease
      local further = {}
      append(further, lease.parents)
      append(further, ahead)
      ahead = further
    end
  end
  return found
end

function lending.lender(ticket, key)
  for _, ancestor in ipairs(lending.ancestors(ticket)) do
    if contains(ancestor.path, key) then return ancestor end
  end
end

function lending.lend(lender, key, borrower)
  book.lend(lender, key, borrower.id)
  borrower.borrowed[key] = lender
end

function lending.borrow(ticket, key)
  local lender = lending.lender(ticket, key)
  if not lender or lender.weight < ticket.weight then return false end
  if book.borrower(lender.id, key) then return false end
  lending.lend(lender.id, key, ticket)
  return true
end

local function stands_inside(ticket, id)
  for _, ancestor in ipairs(lending.ancestors(ticket)) do
    if ancestor.id == id then return true end
  end
  return false
end

-- -- probes ----------------------------------------------------------------------------------

local probing = {}

-- Whether a ticket goes on with its lender's work on a key, as a job's supervisor does.
local function takes_over(ticket, key)
  local job = job_of(ticket.id)
  return job ~= nil and job == job_of(ticket.borrowed[key] or '')
end

function probing.proved_by(lease)
  local tried = {}
  for _, key in ipairs(lease.path) do
    local state = book.key(key)
    if state.cooldown and state.cooldown.probe == lease.id then
      state.cooldown = nil
      book.change(state)
      tried[#tried + 1] = key
    end
  end
  return tried
end

-- If this one was to try the key first, its part that has passed it does, or anyone.
function probing.stop_trying(ticket, key, heir)
  local found, state = given_back(), book.key(key)
  local cooldown = state.cooldown
  if not cooldown or cooldown.probe ~= ticket.id then return found end
  book.change(state)
  if heir and heir.at and contains(passed(heir), key) then
    cooldown.probe = heir.id
    return found
  end
  cooldown.probe = nil
  found.keys[1] = key
  return found
end

function probing.tries(ticket, cooldown)
  return cooldown.probe ~= nil and stands_inside(ticket, cooldown.probe)
end

-- Whether someone on loan may go on: also as part of what its ancestor has begun.
function probing.may_ask(ticket, state)
  if admits_request(state) or takes_over(ticket, state.key) then return true end
  return within_budget(state) and state.cooldown ~= nil and probing.tries(ticket, state.cooldown)
end
