-- Who asks, and whether it and this namespace know each other.

-- A shortcut was asked for alone, and is none.
if ARGV[2] == '' then return {'more'} end

local arguments = cmsgpack.unpack(ARGV[2])
local meta = {changed = {}}
local COUNTED = {arrival = ARRIVAL, token = TOKEN, version = VERSION, refreshed_at = REFRESHED_AT}
clock()

local function read_meta()
  local found = redis.call(
    'HMGET', NS .. 'meta', 'epoch', 'server', 'settles_at', 'settled', 'terms', 'new_keys',
    'format')
  meta.epoch, meta.server = found[1] or '', found[2] or ''
  meta.settles_at, meta.settled = tonumber(found[3] or 0), found[4] == '1'
  meta.terms, meta.new_keys = tonumber(found[5] or 0), tonumber(found[6] or 0)
  meta.format = tonumber(found[7] or 0)
  if not counts then
    local text = redis.call('HGET', NS .. 'keys', COUNTS)
    counts = text and cmsgpack.unpack(text) or NO_COUNTS
  end
  -- They are written with each epoch: without them, without it, or if what they count is not
  -- there, data was lost. Nothing that a server tells of itself shows that keys were deleted,
  -- evicted or swapped, or have expired.
  meta.is_lost = meta.epoch == '' or not is_whole(counts) or meta.format < FORMAT
  for field, place in pairs(COUNTED) do meta[field] = counts[place] end
end

local function set_meta(field, value)
  meta[field] = value
  meta.changed[field] = true
end

-- An operation that has missed a row leaves counts that fit nothing, so that the next one finds
-- that data was lost, whoever asks for it.
local function write_counts()
  local knowledge = meta.epoch .. ' ' .. meta.server .. ' ' .. meta.terms
  local parked, present = redis.call('ZCARD', NS .. 'parked'), sizes()
  if meta.has_holes then knowledge, present = '', '' end
  if next(meta.changed) == nil and parked == counts[PARKED] and present == counts[SIZES] then
    return
  end
  local has_loans = redis.call('EXISTS', NS .. 'loans', NS .. 'children') > 0
  redis.call('HSET', NS .. 'keys', COUNTS, cmsgpack.pack({
    meta.settled and knowledge or '', meta.arrival, meta.token, meta.version, meta.refreshed_at,
    has_loans, parked, present,
  }))
end

local function write_meta()
  local fields = {}
  for field in pairs(meta.changed) do
    if not COUNTED[field] then
      local value = meta[field]
      if type(value) == 'boolean' then value = value and '1' or '0' end
      fields[#fields + 1], fields[#fields + 2] = field, value
    end
  end
  if #fields > 0 then redis.call('HSET', NS .. 'meta', unpack(fields)) end
  write_counts()
  if meta.changed.epoch then -- they may be new
    redis.call('EXPIRE', NS .. 'keys', COUNTS_LIFE_SECONDS)
    redis.call('PERSIST', NS .. 'meta')
  end
end

local function next_number(field)
  set_meta(field, number_after(meta[field]))
  return meta[field]
end

local function reply(answer, news, buried)
  local left = meta.settled and 0 or math.max(0, math.ceil(meta.settles_at - now))
  return {'ok', answer, cmsgpack.pack(news), string.format('%.17g', now), buried, meta.terms, left}
end

read_meta()
if meta.format > FORMAT then return {'newer', meta.format} end
if name ~= 'announce' then
  local is_known = meta.epoch == arguments[1] and meta.server == arguments[5]
  if meta.is_lost or not is_known then return {'epoch'} end
  local is_listed = redis.call('ZSCORE', NS .. 'holders', caller)
  if not is_listed or redis.call('HEXISTS', leases_of(caller), CARD) == 0 then
    return {'stranger'}
  end
end
local newest = redis.call('HGET', leases_of(caller), NEWEST) or '0'
if tonumber(connection) < tonumber(newest) then return {'late'} end
