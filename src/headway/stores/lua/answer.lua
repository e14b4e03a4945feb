-- One of the operations or looks, and what is written down with it.

local wants_more = {request = true, cool_down = true, set_terms = true}

-- A server without memory refuses the first write that may need some, and lets all that follow it
-- pass. Only who wants something new is to be refused.
if not wants_more[name] then redis.call('DEL', NS .. 'nothing') end
if connection ~= newest then redis.call('HSET', leases_of(caller), NEWEST, connection) end
if name == 'announce' then
  meta.is_lost = meta.is_lost or misses_rows(arguments[2])
  begin_anew(arguments[2])
end
settle()
bury_the_dead()

local answer, news
if looks[name] then
  news = book.flush(caller) -- they see what is written down
  answer = looks[name](arguments[2])
else
  answer = cmsgpack.pack(operations[name](arguments[2]))
  if book.new_keys > 0 then drop_idle_keys(arguments[6]) end
  news = book.flush(caller)
end
write_meta()
return reply(answer, news, buried)
