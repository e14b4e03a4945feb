-- Time goes on between two operations: a namespace settles, and holders fall silent.

rules.max_waiting, rules.max_cooling = arguments[3], arguments[4]
local NO_CARD = '[0,"","(unknown)","",null]'
-- What the dead held: whose it was, the ticket's id and the ticket.
local buried = {}

function book.next_token() return next_number('token') end

local function all_keys()
  local keys = removed(redis.call('HKEYS', NS .. 'keys'), COUNTS)
  book.load(keys)
  return keys
end

-- A namespace that has settled stays so, and one that settles does not do so for longer, wherever
-- the clock is put.
local function settle()
  local longest = book.now + arguments[7]
  if not meta.settled and meta.settles_at > longest then set_meta('settles_at', longest) end
  book.is_settling = not meta.settled and book.now < meta.settles_at
  if meta.settled or book.is_settling then return end
  set_meta('settled', true)
  rules.serve_everyone(all_keys(), book.parked())
end

-- Give back what those left who were not heard in time.
-- All of them leave before anyone is served: nothing is handed to one who is dead as well.
local function bury(holders, reason)
  local all = {}
  for _, holder in ipairs(holders) do
    local card = redis.call('HGET', leases_of(holder), CARD)
    if not card then book.miss() end -- what it held is counted, and nobody knows what that was
    for _, ticket in ipairs(book.tickets_of(holder)) do
      all[#all + 1] = ticket
      if not ticket.at then -- one that waits may come back to its place
        book.tell(ticket, {'revoked', reason, ticket.token})
        append(buried, {card or NO_CARD, ticket.id, packed_ticket(ticket)})
      end
    end
    redis.call('ZREM', NS .. 'holders', holder)
    redis.call('HDEL', leases_of(holder), CARD)
    redis.call('EXPIRE', leases_of(holder), LATE_SECONDS)
    redis.call('DEL', NS .. 'inbox:' .. holder)
  end
  rules.end_all(all)
end

local function hear_from(holder, seconds)
  redis.call('ZADD', NS .. 'holders', 'XX', book.now + seconds, holder)
end

-- Those who were given more time by one who is new, and were not heard since, are dead.
local function spare(holders)
  local spared_until = tonumber(redis.call('HGET', NS .. 'meta', 'spared_until') or 0)
  local dead = {}
  redis.call('HSET', NS .. 'meta', 'spared_until', book.now + arguments[7])
  for _, holder in ipairs(holders) do
    if tonumber(redis.call('ZSCORE', NS .. 'holders', holder)) == spared_until then
      dead[#dead + 1] = holder
    else
      hear_from(holder, arguments[7])
    end
  end
  return dead
end

-- If nobody was heard for longer than from one beat to the next, then perhaps nobody could be: the
-- server slept, or its clock was put forward. All get the time to be heard again. The caller knows
-- of itself; one who is new goes by whoever was heard last, and gives that time once only: others
-- like it may come and go, and the dead must not be kept by them for ever.
local function bury_the_dead()
  local holders = NS .. 'holders'
  local dead = redis.call('ZRANGEBYSCORE', holders, '-inf', '(' .. string.format('%.17g', book.now))
  if #dead == 0 then return end
  local silent_at = redis.call('ZSCORE', holders, caller)
  local last = silent_at or redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
  local may_be_alive = tonumber(last) < book.now + arguments[7] / 2
  if may_be_alive and silent_at then
    for _, holder in ipairs(dead) do hear_from(holder, arguments[7]) end
    return
  end
  if may_be_alive then dead = spare(dead) end
  if #dead > 0 then bury(dead, 'its process was not heard in time') end
end
