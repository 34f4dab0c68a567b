-- Takes one job's outcome, all of it or nothing.
--
-- KEYS: 1 RQ's leases of the queue, 2 result, 3 stream, 4 batch, 5 batch events, 6 attempts, 7 cancelled
-- ARGV: 1 lease ('' where none can exist), 2 job id, 3 result, 4 result without its texts, 5 attempt,
--       6 seconds to keep the stream, 7 seconds to keep the result (0: for ever),
--       8 status, 9 finish reason, 10 empty, 11... counter and increment in turns

if ARGV[1] ~= '' and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 'lost'
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 'known'
end

-- First, because a full or failing server refuses it: then nothing is half done.
redis.call('SET', KEYS[2], ARGV[3])
if tonumber(ARGV[7]) > 0 then
  redis.call('EXPIRE', KEYS[2], ARGV[7])
end
redis.call('XADD', KEYS[3], '*', 'type', 'done', 'attempt', ARGV[5], 'result', ARGV[4])
redis.call('EXPIRE', KEYS[3], ARGV[6])
redis.call('HDEL', KEYS[6], ARGV[2])
redis.call('SREM', KEYS[7], ARGV[2])

-- A batch that was removed meanwhile does not come back.
if redis.call('EXISTS', KEYS[4]) == 1 then
  for i = 11, #ARGV, 2 do
    redis.call('HINCRBY', KEYS[4], ARGV[i], ARGV[i + 1])
  end
  redis.call('XADD', KEYS[5], '*', 'job_id', ARGV[2], 'status', ARGV[8],
    'finish_reason', ARGV[9], 'empty', ARGV[10])
end
return 'committed'
