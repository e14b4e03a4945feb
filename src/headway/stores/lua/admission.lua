-- Who goes next: the rules of the queue, as admission.py. The tests hold both against one model.

-- -- coming ----------------------------------------------------------------------------------

local function never_fits(ticket, key)
  local cap = book.key(key).cap
  if ticket.weight <= cap or cap == UNKNOWN_CAP then return false end
  local lender = lending.lender(ticket, key)
  return not lender or lender.weight < ticket.weight
end

-- What fits nowhere on its path, or is left alone for too long; jobs can wait.
local function hopeless(ticket)
  for _, key in ipairs(ticket.path) do
    if not ticket.borrowed[key] and never_fits(ticket, key) then
      return {'refused', 'too_heavy', key, {}}
    end
  end
  if job_of(ticket.id) then return nil end
  for _, key in ipairs(ticket.path) do
    local cooldown = book.key(key).cooldown
    if cooldown and not cooldown.over and cooldown['until'] - book.now > rules.max_cooling then
      return {'refused', 'cooling', key, {}}
    end
  end
end

local function park(ticket, state)
  ticket.at = state.key
  state.waiting = state.waiting + 1
  book.change(state)
  book.park(ticket)
end

local function unpark(ticket)
  local left = ticket.at
  local state = book.key(left)
  state.waiting = state.waiting - 1
  book.change(state)
  book.unpark(ticket)
  return left
end

-- Take what the key has to give, until the grant or until it is given back.
local function pass(ticket, state)
  state.promised = state.promised + 1
  if state.cooldown and admits_probe(state.cooldown) then state.cooldown.probe = ticket.id end
  if not ticket.borrowed[state.key] then
    state.reserved = state.reserved + ticket.weight
    ticket.reserved[#ticket.reserved + 1] = state.key
  end
  book.change(state)
  if state.waiting > 0 then book.stir(state.key) end
end

local function grant(ticket)
  for _, key in ipairs(ticket.path) do
    local state = book.key(key)
    book.change(state)
    if ticket.borrowed[key] then
      state.promised = state.promised - 1
      if state.cooldown and probing.tries(ticket, state.cooldown) then
        state.cooldown.probe = ticket.id
      end
    else
      state.used = state.used + ticket.weight
      if contains(ticket.reserved, key) then
        state.reserved = state.reserved - ticket.weight
        state.promised = state.promised - 1
      end
    end
    if state.budget < UNCAPPED and not takes_over(ticket, key) then book.charge(state) end
  end
  ticket.reserved = {}
  book.grant(ticket)
  book.tell(ticket, {'granted', ticket.token})
end

local function someone_before(ticket, state)
  if state.waiting == 0 then return false end
  local head = book.head(state.key)
  return head and before(head, ticket)
end

-- Take room key by key; park at the first that has none.
local function collect(ticket, keys)
  for _, key in ipairs(keys) do
    local state = book.key(key)
    if #ticket.parents > 0 and lending.borrow(ticket, key) then
      if not probing.may_ask(ticket, state) then return park(ticket, state) end
      pass(ticket, state)
    elseif not is_open(state) then
      if not admits(state, ticket.weight) or someone_before(ticket, state) then
        return park(ticket, state)
      end
      pass(ticket, state)
    end
  end
  grant(ticket)
end

function rules.enter(ticket)
  local refusal = hopeless(ticket)
  if refusal then return refusal end
  if #ticket.parents > 0 then
    local parents = {}
    for i, ancestor in ipairs(lending.ancestors(ticket)) do parents[i] = ancestor.id end
    ticket.parents = parents
  end
  if book.is_settling then return park(ticket, book.key(ticket.path[1])) end
  collect(ticket, ticket.path)
end

-- Refuse a newly parked ticket that must not wait, and leave no trace of it.
function rules.turn_away(ticket, wait)
  if not ticket.at then return nil end
  local state, refusal = book.key(ticket.at), nil
  if not wait then
    refusal = {'refused', book.is_settling and 'settling' or obstacle(state), ticket.at, {}}
  elseif state.waiting > rules.max_waiting then
    refusal = {'refused', 'queue_full', ticket.at, {}}
  else
    refusal = circles.refusal(ticket)
  end
  if refusal then
    rules.end_all({ticket})
  elseif (#ticket.reserved > 0 or ticket.weight > 1) and #ticket.within == 0 then
    rules.break_circles()
  end
  return refusal
end

-- -- going -----------------------------------------------------------------------------------

-- Undo a parked ticket's collecting of these keys.
local function give_back(ticket, keys)
  local found, left = given_back(), unpark(ticket)
  found.keys[1] = left
  for _, key in ipairs(keys) do
    local state = book.key(key)
    add(found, probing.stop_trying(ticket, key))
    if ticket.borrowed[key] then
      local lender = ticket.borrowed[key]
      ticket.borrowed[key] = nil
      book.end_loan(lender, key)
      found.loans[#found.loans + 1] = {lender, key}
      if key ~= left then
        state.promised = state.promised - 1
        book.change(state)
      end
    elseif contains(ticket.reserved, key) then
      ticket.reserved = removed(ticket.reserved, key)
      state.reserved = state.reserved - ticket.weight
      state.promised = state.promised - 1
      book.change(state)
      found.keys[#found.keys + 1] = key
    end
  end
  return found
end

-- The slot that a ticket which was parked before, or elsewhere, may go ahead on now.
local function loan_for(ticket)
  local found = given_back()
  local lender = ticket.at and lending.lender(ticket, ticket.at)
  if lender then found.loans[1] = {lender.id, ticket.at} end
  return found
end

local function send_away(ticket, refusal)
  local found = give_back(ticket, ticket.path)
  book.strike(ticket)
  book.tell(ticket, refusal)
  return found
end

local function refuse_if_hopeless(ticket)
  local refusal = hopeless(ticket)
  return refusal and send_away(ticket, refusal) or given_back()
end

-- Refuse one of those who can only wait for each other, until all others can go on.
function rules.break_circles()
  rules.may_circle = false
  local victim, refusal = circles.victim()
  while victim do
    rules.hand_on(send_away(victim, refusal))
    victim, refusal = circles.victim()
  end
end

-- Let a parked ticket that had passed the key wait at it again.
local function pull_back(ticket, key)
  local keys = {key}
  append(keys, rest(ticket.path, key))
  local found = give_back(ticket, keys)
  rules.may_circle = true
  park(ticket, book.key(key))
  return add(found, loan_for(ticket))
end

-- Make a parked ticket ask again for a key whose terms became harder.
local function readmit(ticket, key)
  if not contains(ticket.path, key) or ticket.borrowed[key] or not ticket.at then
    return given_back()
  end
  if never_fits(ticket, key) then return refuse_if_hopeless(ticket) end
  if contains(passed(ticket), key) then return pull_back(ticket, key) end
  return given_back()
end

-- The lender is gone: the borrower counts for itself from now on.
local function take_over(borrower, state)
  borrower.borrowed[state.key] = nil
  book.keep(borrower)
  book.change(state)
  if not borrower.at then
    state.used = state.used + borrower.weight
  elseif borrower.at == state.key then
    return given_back() -- it waits here, and from now on for room as well
  elseif has_room(state, borrower.weight) then
    state.reserved = state.reserved + borrower.weight
    borrower.reserved[#borrower.reserved + 1] = state.key
  else
    state.promised = state.promised - 1
    return add(probing.stop_trying(borrower, state.key), readmit(borrower, state.key))
  end
  return given_back()
end

local function end_lease(lease)
  local found = given_back()
  for _, key in ipairs(lease.path) do
    local lender, borrower = lease.borrowed[key], book.borrower(lease.id, key)
    local child = borrower and book.ticket(borrower)
    if borrower and not child then book.miss() end
    add(found, probing.stop_trying(lease, key, child))
    if borrower then book.end_loan(lease.id, key) end
    if lender then
      book.end_loan(lender, key)
      if child then
        lending.lend(lender, key, child) -- the one in the middle leaves, the loan stays
        book.keep(child)
      else
        found.loans[#found.loans + 1] = {lender, key}
      end
    else
      local state = book.key(key)
      state.used = state.used - lease.weight
      book.change(state)
      found.keys[#found.keys + 1] = key
      if child then add(found, take_over(child, state)) end
    end
  end
  book.strike(lease)
  for _, child in ipairs(book.parked_children()) do
    -- Someone may have waited for nothing but a loan that was large enough.
    add(found, refuse_if_hopeless(child))
    if contains(child.parents, lease.id) then
      rules.may_circle = true
      add(found, loan_for(child))
    end
  end
  return found
end

-- -- serving ---------------------------------------------------------------------------------

-- Let a parked ticket pass the key that it waits at.
local function move_on(ticket, state)
  unpark(ticket)
  pass(ticket, state)
  collect(ticket, rest(ticket.path, state.key))
  if ticket.at then rules.may_circle = true end
  if ticket.at and gate(book.key(ticket.at)) > PAUSED then
    local head = book.head(ticket.at)
    if head and head.id == ticket.id then book.stir(ticket.at) end
  end
end

-- Who of those parked at a key can go on: its head, and the first who needs no room.
local function next_at(state, is_opened)
  local found = {}
  local head = admits(state, 1) and book.head(state.key)
  if head and admits(state, head.weight) then found[1] = head end
  local cools = state.cooldown and not state.cooldown.over
  if not cools and within_budget(state) and (is_opened or gate(state) >= METERED) then
    for _, child in ipairs(book.parked_children()) do
      if child.at == state.key and child.borrowed[state.key] and probing.may_ask(child, state) then
        found[#found + 1] = child
        break
      end
    end
  end
  return found
end

local function pass_on_loan(lender, key)
  for _, child in ipairs(book.parked_children()) do
    if child.at == key then
      local nearest = lending.lender(child, key)
      if nearest and nearest.id == lender and lending.borrow(child, key) then
        book.keep(child)
        rules.may_circle = true
        local state = book.key(key)
        if probing.may_ask(child, state) then move_on(child, state) end
        return
      end
    end
  end
end

-- Hand room on: returned loans to the lender's other children, the rest by rank. While someone
-- has still to say what it holds, room may only seem free.
function rules.hand_on(found)
  if book.is_settling then return end
  for _, loan in ipairs(found.loans) do
    pass_on_loan(loan[1], loan[2])
    found.keys[#found.keys + 1] = loan[2]
  end
  local states, seen = {}, {}
  for _, key in ipairs(found.keys) do
    if not seen[key] then
      seen[key] = true
      states[#states + 1] = book.key(key)
    end
  end
  while true do
    -- Of all lines that got room, the best-ranked head goes first: further on, at an ancestor,
    -- there may be room for one of them only.
    local best, best_state
    for _, state in ipairs(states) do
      if state.waiting > 0 then
        for _, ticket in ipairs(next_at(state, found.opened[state.key])) do
          if not best or before(ticket, best) then best, best_state = ticket, state end
        end
      end
    end
    if not best then break end
    move_on(best, best_state)
  end
  for _, state in ipairs(states) do
    if state.waiting > 0 then book.stir(state.key) end
  end
  if rules.may_circle then rules.break_circles() end
end

-- Take tickets off the book, parked or granted, and then serve what became free.
function rules.end_all(tickets, found)
  found = found or given_back()
  for _, ticket in ipairs(tickets) do
    -- One that ended before may have ended this one.
    if not book.struck[ticket.id] then
      if ticket.at then
        add(found, give_back(ticket, ticket.path))
        book.strike(ticket)
      else
        add(found, end_lease(ticket))
      end
    end
  end
  rules.hand_on(found)
end

function rules.release(lease) rules.end_all({lease}, opened(probing.proved_by(lease))) end

function rules.cancel(ticket)
  book.tell(ticket, {'withdrawn'})
  rules.end_all({ticket})
end

function rules.revoke(lease, reason)
  book.tell(lease, {'revoked', reason})
  rules.end_all({lease})
end

function rules.prove(lease) rules.hand_on(opened(probing.proved_by(lease))) end

function rules.stand_back(lease)
  local found = given_back()
  for _, key in ipairs(lease.path) do
    local borrower = book.borrower(lease.id, key)
    add(found, probing.stop_trying(lease, key, borrower and book.ticket(borrower)))
  end
  rules.hand_on(found)
end

-- Put a waiting ticket back to its first key, with nothing reserved.
function rules.restart(ticket)
  ticket.reserved, ticket.borrowed = {}, {}
  rules.may_circle = true
  park(ticket, book.key(ticket.path[1]))
end

-- Let these ask for what they need by the present terms, and grant whoever can be granted.
function rules.serve_everyone(keys, returned)
  local found = opened(keys)
  for _, ticket in ipairs(returned) do
    if ticket.at then add(found, refuse_if_hopeless(ticket)) end
  end
  for _, child in ipairs(book.parked_children()) do add(found, loan_for(child)) end
  rules.hand_on(found)
end

-- -- other terms -----------------------------------------------------------------------------

-- The parked tickets that need each key, the best place first.
local function parked_by_key()
  local found = {}
  for _, ticket in ipairs(book.parked()) do
    for _, key in ipairs(ticket.path) do
      found[key] = found[key] or {}
      table.insert(found[key], ticket)
    end
  end
  return found
end

function rules.call_back(key, among)
  local found = given_back()
  for _, ticket in ipairs(among) do
    if contains(ticket.path, key) and ticket.at and contains(passed(ticket), key) then
      add(found, pull_back(ticket, key))
    end
  end
  return found
end

-- All terms change and all reservations fall before anyone is served. Who waits is read once: many
-- keys may change at once.
function rules.change(changes)
  local found, waiting_for = given_back(), nil
  for _, change in ipairs(changes) do
    local key, cap, paused, budget = change[1], change[2], change[3], change[4]
    local state = book.key(key)
    local tightened = cap < state.cap or state.cap == UNKNOWN_CAP or (paused and not state.paused)
    local shortened = budget < state.budget
    state.cap, state.paused, state.budget = cap, paused, budget
    book.change(state)
    add(found, opened({key}))
    if shortened or tightened then waiting_for = waiting_for or parked_by_key() end
    local among = waiting_for and waiting_for[key] or {}
    if shortened then add(found, rules.call_back(key, among)) end
    if tightened then
      rules.may_circle = true
      for _, ticket in ipairs(among) do add(found, readmit(ticket, key)) end
    end
  end
  rules.hand_on(found)
end
