-- Takes the jobs of a batch that have a result off a queue, in one pass; returns how many.
--
-- KEYS: 1 the queue
-- ARGV: 1 what the batch's job ids begin with, 2 what the keys of results begin with

local kept, dropped = {}, 0
for _, job_id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if job_id:sub(1, #ARGV[1]) == ARGV[1] and redis.call('EXISTS', ARGV[2] .. job_id) == 1 then
    dropped = dropped + 1
  else
    kept[#kept + 1] = job_id
  end
end
if dropped > 0 then
  redis.call('DEL', KEYS[1])
  for first = 1, #kept, 1000 do
    redis.call('RPUSH', KEYS[1], unpack(kept, first, math.min(first + 999, #kept)))
  end
end
return dropped
