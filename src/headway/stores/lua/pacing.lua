-- Leaving a provider alone, and budgets of requests: as pacing.py.

local FIRST_SECONDS, LONGEST_SECONDS = 1, 60
local JITTER_SHARE, MAX_JITTER_SECONDS = 0.1, 5

local function tend_one(state)
  local spent, cooldown = state.spent, state.cooldown
  if state.budget < UNCAPPED and spent > 0 then book.forgive(state) end
  local passed_by = cooldown and not (cooldown.since <= book.now and book.now < cooldown['until'])
  if not cooldown or cooldown.over or not passed_by then return state.spent < spent end
  cooldown.over = true
  book.change(state)
  return true
end

-- Do at these keys what the time has come for, and let in whom that lets in.
function rules.tend(keys)
  local due = {}
  for _, key in ipairs(keys) do
    local state = book.key(key)
    if state and tend_one(state) then due[#due + 1] = key end
  end
  if #due > 0 then rules.hand_on({keys = due, loans = {}, opened = {}}) end
end

local function usual_seconds(present)
  if not present then return FIRST_SECONDS end
  local last = present['until'] - present.since
  return math.min(LONGEST_SECONDS, math.max(FIRST_SECONDS, 2 * last))
end

function rules.cool_down(key, seconds, reason, jitter)
  local state = book.key(key)
  tend_one(state)
  local present = state.cooldown
  local wanted = seconds and math.max(0, seconds) or usual_seconds(present)
  local last = book.now + wanted + jitter * math.min(wanted * JITTER_SHARE, MAX_JITTER_SECONDS)
  if present and not present.over and (not seconds or present['until'] >= last) then
    return present['until'] - book.now
  end
  state.cooldown = {since = book.now, ['until'] = last, reason = reason, over = false}
  book.change(state)
  local parked = book.parked()
  local found = rules.call_back(key, parked)
  for _, ticket in ipairs(parked) do
    if contains(ticket.path, key) then add(found, refuse_if_hopeless(ticket)) end
  end
  book.stir(key)
  rules.hand_on(found)
  return last - book.now
end

function rules.end_cool_down(key)
  local state = book.key(key)
  if not state or not state.cooldown then return false end
  state.cooldown = nil
  book.change(state)
  rules.hand_on(opened({key}))
  return true
end
