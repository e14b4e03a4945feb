-- What a store can be asked. Each operation gets its arguments and returns what goes into the
-- answer; whatever it decided about others is sent to them when it is written down.

-- -- tickets -----------------------------------------------------------------------------------

local operations = {}

-- How long until the time has come for something, for someone who waits.
local function seconds_left(gated)
  local due = {}
  book.caller_knows_time = true
  if book.is_settling then due[1] = meta.settles_at end
  if redis.call('ZCARD', NS .. 'holders') <= FEW_HOLDERS then
    local first = redis.call('ZRANGE', NS .. 'holders', 0, 1, 'WITHSCORES')
    for i = 1, #first, 2 do
      if first[i] ~= caller then due[#due + 1] = tonumber(first[i + 1]) end
    end
  end
  for _, key in ipairs(gated) do
    local state = book.key(key)
    if state and state.waiting > 0 then
      if state.cooldown and not state.cooldown.over then
        due[#due + 1] = state.cooldown['until']
      elseif not within_budget(state) then
        local oldest = redis.call('LINDEX', NS .. 'admitted:' .. key, 0)
        if oldest then due[#due + 1] = (tonumber(oldest) + WINDOW_MS) / 1000 end
      end
    end
  end
  if #due == 0 then return false end
  table.sort(due)
  return tostring(math.max(0, due[1] - book.now))
end

local function answer_to(ticket)
  local left = false
  if ticket.at then
    local gated = redis.call('SMEMBERS', NS .. 'gated')
    book.load(gated)
    left = seconds_left(gated)
  end
  return {
    ticket.at and 'waiting' or 'granted', ticket.token, ticket.at or false, ticket.arrival,
    ticket.rank, ticket.since, left,
  }
end

-- Read the states of a path. The caller says what the present terms make of each key: that makes
-- those that are new, and opens those that are closed.
local function load_by_terms(path, terms)
  book.load(path, terms)
  local closed = {}
  for i, key in ipairs(path) do
    if book.key(key).cap == UNKNOWN_CAP then
      closed[#closed + 1] = {key, terms[i][1], terms[i][2], terms[i][3]}
    end
  end
  if #closed > 0 then rules.change(closed) end
end

function operations.request(a)
  local terms, ticket, wait, boost = a[2], new_ticket(unpack(a[3])), a[4], a[5]
  if meta.terms ~= a[1] then return {'terms'} end
  local present = book.ticket(ticket.id)
  if present then ticket = present end -- asked again, because the first answer was lost
  if not present then -- refused if there is no memory
    redis.call('HSET', NS .. 'meta', 'epoch', meta.epoch)
  end
  load_by_terms(ticket.path, terms)
  book.asking = ticket.id
  if present then return answer_to(ticket) end
  if ticket.arrival == 0 then
    ticket.arrival, ticket.since = next_number('arrival'), book.now
    ticket.rank = ticket.arrival - ticket.priority * boost
  end
  rules.tend(ticket.path)
  local refusal = rules.enter(ticket) or rules.turn_away(ticket, wait)
  if refusal then return {'refused', refusal[2], refusal[3], refusal[4]} end
  return answer_to(ticket)
end

function operations.release(a)
  local id, held_seconds = a[1], a[2]
  redis.call('HDEL', NS .. 'verdicts:' .. caller, id)
  local ticket = book.ticket(id)
  if not ticket then return {'gone'} end
  book.load(ticket.path)
  if ticket.at then
    rules.end_all({ticket})
    return {'waited'}
  end
  local handed_on = false
  for _, key in ipairs(ticket.path) do
    if book.borrower(id, key) then handed_on = true end
  end
  if not handed_on then
    for _, key in ipairs(ticket.path) do book.learn(book.key(key), held_seconds) end
  end
  rules.release(ticket)
  return {'released'}
end

-- How a ticket of the caller ended that others have ended. It is kept until that is given back:
-- this answer may get lost.
local function verdict_on(id)
  local message = redis.call('HGET', NS .. 'verdicts:' .. caller, id)
  return message and cmsgpack.unpack(message)[2] or nil
end

function operations.withdraw(a)
  local ticket = book.ticket(a[1])
  if not ticket then
    local verdict = verdict_on(a[1])
    redis.call('HDEL', NS .. 'verdicts:' .. caller, a[1])
    return verdict or {'gone'}
  end
  if not ticket.at then return {'granted', ticket.token, ticket.since} end
  book.load(ticket.path)
  rules.end_all({ticket})
  return {'gone'}
end

-- What became of these waiting tickets and leases of the caller.
function operations.look(a)
  local found = {}
  for _, id in ipairs(a[1]) do
    local ticket = book.ticket(id)
    if not ticket then
      found[#found + 1] = {id, verdict_on(id) or {'unknown'}}
    elseif not ticket.at then
      found[#found + 1] = {id, {'granted', ticket.token}}
    end
  end
  return found
end

function operations.cancel(a)
  local ticket = book.ticket(a[1])
  if not ticket or not ticket.at then return {false} end
  book.load(ticket.path)
  rules.cancel(ticket)
  return {true}
end

function operations.revoke(a)
  local lease = book.lease(a[1])
  if not lease then return {false} end
  book.load(lease.path)
  rules.revoke(lease, a[2])
  return {true}
end

-- -- leaving a key alone -----------------------------------------------------------------------

function operations.cool_down(a)
  if meta.terms ~= a[1] then return {'terms'} end
  load_by_terms({a[3]}, a[2])
  return {'cooling', tostring(rules.cool_down(a[3], a[4] or nil, a[5], a[6]))}
end

function operations.end_cool_down(a) return {rules.end_cool_down(a[1])} end

local function for_lease(work)
  return function(a)
    local lease = book.lease(a[1])
    if lease then
      book.load(lease.path)
      work(lease)
    end
    return {}
  end
end

operations.prove = for_lease(rules.prove)
operations.stand_back = for_lease(rules.stand_back)

-- Do what the time has come for; how long until it comes again, for someone who waits.
function operations.tend()
  local gated = redis.call('SMEMBERS', NS .. 'gated')
  book.load(gated)
  rules.tend(gated)
  return {seconds_left(gated)}
end

-- -- terms -------------------------------------------------------------------------------------

-- Of what the terms make of these keys, the part that differs from the present.
local function differing(wanted)
  local changes = {}
  for _, change in ipairs(wanted) do
    local state = book.key(change[1])
    local is_same = not state
      or state.cap == change[2] and state.paused == change[3] and state.budget == change[4]
    if not is_same then changes[#changes + 1] = change end
  end
  return changes
end

-- Replace the terms. A key that the caller has not seen, because it came since it looked, is
-- closed until somebody says what the new terms make of it: the work of one call has an end, also
-- when new keys come all the time.
function operations.set_terms(a)
  local known_version, text, wanted = a[1], a[2], a[3]
  if meta.terms ~= known_version then return {false, {}} end
  redis.call('SET', NS .. 'terms', text)
  set_meta('terms', known_version + 1)
  local is_known, new = {}, {}
  for _, change in ipairs(wanted) do is_known[change[1]] = true end
  for _, key in ipairs(all_keys()) do
    if not is_known[key] then
      new[#new + 1] = key
      book.close(book.key(key))
    end
  end
  rules.change(differing(wanted))
  return {true, new}
end

-- Have the next operation find that data was lost.
function operations.distrust()
  book.miss()
  return {}
end

function operations.fill_in(a)
  if meta.terms ~= a[1] then return {} end -- whoever has changed them since has seen these keys
  rules.change(differing(a[2]))
  return {}
end
