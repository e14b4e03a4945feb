-- Looks at the store: they answer with what is kept, as it is kept.

local looks = {}

local function admitted(keys)
  local found = {}
  for i, key in ipairs(keys) do
    found[i] = redis.call('LRANGE', NS .. 'admitted:' .. key, 0, -1)
  end
  return found
end

function looks.survey(a)
  return {redis.call('HMGET', NS .. 'keys', unpack(a[1])), admitted(a[1]),
    redis.call('GET', NS .. 'terms') or ''}
end

function looks.terms() return {meta.terms, redis.call('GET', NS .. 'terms') or ''} end

-- Every key and its state.
local function every_key()
  local rows = redis.call('HGETALL', NS .. 'keys')
  local counted_at = index_of(rows, COUNTS)
  if counted_at then
    table.remove(rows, counted_at)
    table.remove(rows, counted_at)
  end
  return rows
end

function looks.key_names() return removed(redis.call('HKEYS', NS .. 'keys'), COUNTS) end

-- Everyone who is there: who it is, what others are told of it, and its leases.
local function everyone()
  local found = {}
  for i, holder in ipairs(redis.call('ZRANGE', NS .. 'holders', 0, -1)) do
    found[i] = {holder, redis.call('HGETALL', leases_of(holder))}
  end
  return found
end

-- The keys on which requests were counted lately, also those that have no budget any more.
local function spent_lately(rows)
  local found = {}
  for i = 1, #rows, 2 do
    if unpacked_state(rows[i], rows[i + 1]).spent > 0 then found[#found + 1] = rows[i] end
  end
  return found
end

local function all_waiting()
  local found = {}
  for i, holder in ipairs(redis.call('ZRANGE', NS .. 'holders', 0, -1)) do
    found[i] = redis.call('HGETALL', waiting_of(holder))
  end
  return found
end

function looks.census()
  local rows = every_key()
  local spent = spent_lately(rows)
  return {
    rows, everyone(), all_waiting(), redis.call('HGETALL', NS .. 'loans'),
    redis.call('GET', NS .. 'terms') or '', spent, admitted(spent),
  }
end

function looks.outlook(a)
  local ticket = book.ticket(a[1])
  if not ticket or not ticket.at then return {} end
  local position = redis.call('ZRANK', NS .. 'line:' .. ticket.at, ticket.id)
  return {
    ticket.at, redis.call('HGET', NS .. 'keys', ticket.at), admitted({ticket.at}), position + 1,
    everyone(),
  }
end

function looks.positions(a)
  local found = {}
  for _, id in ipairs(a[1]) do
    local ticket = book.ticket(id)
    local position = ticket and ticket.at and redis.call('ZRANK', NS .. 'line:' .. ticket.at, id)
    if position then
      found[#found + 1] = id
      found[#found + 1] = position + 1
    end
  end
  return found
end

-- How others have ended these tickets, as long as their holders have not taken note of it.
function looks.verdicts(a)
  local found = {}
  for _, id in ipairs(a[1]) do
    local message = redis.call('HGET', NS .. 'verdicts:' .. holder_of(id), id)
    if message then found[#found + 1] = message end
  end
  return found
end

-- Where a holder's board is: a mark of the directory, or what is known of it besides.
local function home_of(holder)
  local card = redis.call('HGET', leases_of(holder), CARD)
  local told = card and cjson.decode(card) or {}
  return told[7] or (told[2] or '') .. ' ' .. (told[4] or '')
end

-- Whether somebody waits for a job that stands on the caller's own board, which counts it itself.
local function own_jobs()
  local homes, own = {}, home_of(caller)
  return function(id)
    local holder = holder_of(id)
    if not job_of(id) then return false end
    homes[holder] = homes[holder] or home_of(holder)
    return homes[holder] == own
  end
end

function looks.ahead(a)
  local before_it = redis.call(
    'ZRANGEBYSCORE', NS .. 'line:' .. a[1], '-inf', '(' .. string.format('%.17g', a[2]))
  local count, is_own_job = 0, own_jobs()
  for _, id in ipairs(before_it) do
    if not is_own_job(id) then count = count + 1 end
  end
  return {count}
end

function looks.bystanders()
  local found, is_own_job = {}, own_jobs()
  for _, ticket in ipairs(book.parked()) do
    if not is_own_job(ticket.id) then
      found[#found + 1] = ticket.at
      found[#found + 1] = string.format('%.0f', ticket.rank)
    end
  end
  return found
end

function looks.version() return {meta.version} end
