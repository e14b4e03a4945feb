-- Counts, lines and loans made anew from the tickets: rows may be missing, and then the rest speaks
-- of tickets that nobody has. Those who are alive bring theirs again.

-- Everyone's tickets, the best place first: leases, and those that wait.
local function all_tickets()
  local leases, waiting = {}, {}
  for _, holder in ipairs(redis.call('ZRANGE', NS .. 'holders', 0, -1)) do
    for _, ticket in ipairs(book.tickets_of(holder)) do
      local list = ticket.at and waiting or leases
      list[#list + 1] = ticket
    end
  end
  table.sort(leases, before)
  table.sort(waiting, before)
  return leases, waiting
end

-- The states of all keys there are and of those that the tickets name; nothing counts on them yet.
local function empty_states(leases, waiting)
  for _, key in ipairs(all_keys()) do redis.call('DEL', NS .. 'line:' .. key) end
  for _, list in ipairs({leases, waiting}) do
    for _, ticket in ipairs(list) do
      book.load(ticket.path)
      for _, key in ipairs(ticket.path) do
        book.states[key] = book.states[key] or new_state(key, UNKNOWN_CAP, false, UNCAPPED)
      end
    end
  end
  for _, state in pairs(book.states) do
    state.used, state.reserved, state.waiting, state.promised = 0, 0, 0, 0
    state.was_gated = false
    if state.spent > 0 then book.forgive(state) end
    book.change(state)
  end
end

local function count_lease(lease, by_id)
  for _, key in ipairs(lease.path) do
    local lender = by_id[lease.borrowed[key] or '']
    local is_lent = lender and contains(lender.path, key) and not book.borrower(lender.id, key)
    if is_lent then
      book.lend(lender.id, key, lease.id)
    else
      lease.borrowed[key] = nil
      local state = book.key(key)
      state.used = state.used + lease.weight
    end
  end
  book.keep(lease)
end

-- Waiting tickets keep their ranks and collect their keys again from the first one on.
local function recount()
  local leases, waiting = all_tickets()
  for _, each in ipairs({'parked', 'children', 'insiders', 'loans', 'gated'}) do
    redis.call('DEL', NS .. each)
  end
  empty_states(leases, waiting)
  local by_id = {}
  for _, lease in ipairs(leases) do by_id[lease.id] = lease end
  for _, lease in ipairs(leases) do count_lease(lease, by_id) end
  for _, state in pairs(book.states) do
    local cooldown = state.cooldown
    if cooldown and not by_id[cooldown.probe or ''] then cooldown.probe = nil end
  end
  for _, ticket in ipairs(waiting) do rules.restart(ticket) end
end
