-- Takes the outcome of a job, all of it or nothing; or the same outcome of several jobs of a batch.
-- Returns what became of each.
--
-- KEYS: 1 RQ's leases of the queue, 2 RQ's canceled jobs of the queue, 3 batch, 4 batch events,
--       5 batch jobs, 6 attempts, 7 cancelled; then for each job: result, stream, RQ's job
-- ARGV: 1 guard: 'lease', 'queued' or 'none', 2 lease, 3 seconds to keep the stream,
--       4 seconds to keep the result (0: for ever), 5 status, 6 finish reason, 7 empty,
--       8 counters and increments, as one JSON object;
--       then for each job: id, attempt, result, result without its texts

local guard, retention, now = ARGV[1], tonumber(ARGV[4]), redis.call('TIME')[1]
local counters = cjson.decode(ARGV[8])

-- Why the job's result is not taken, or nothing.
local function refusal(id, result, rq_job)
  if guard == 'lease' and not redis.call('ZSCORE', KEYS[1], ARGV[2]) then
    return 'lost'
  end
  if redis.call('EXISTS', result) == 1 then
    return 'known'
  end
  if guard ~= 'queued' then
    return nil
  end
  local status = redis.call('HGET', rq_job, 'status')
  if not status then
    return 'lost'
  elseif status == 'started' then
    redis.call('SADD', KEYS[7], id)
    return 'running'
  elseif status ~= 'queued' and status ~= 'canceled' then
    return 'known'
  end
end

local function store(id, attempt, text, short, result, stream)
  -- First, because a full or failing server refuses it: then nothing is half done.
  redis.call('SET', result, text)
  if retention > 0 then
    redis.call('EXPIRE', result, retention)
  end
  if guard == 'queued' and redis.call('EXISTS', stream) == 1 then
    redis.call('XADD', stream, '*', 'type', 'restart', 'attempt', attempt)
  end
  redis.call('XADD', stream, '*', 'type', 'done', 'attempt', attempt, 'result', short)
  redis.call('EXPIRE', stream, ARGV[3])
  redis.call('HDEL', KEYS[6], id)
  redis.call('SREM', KEYS[7], id)
end

-- What Job.cancel of RQ writes, but that the id stays in the queue: taking it out here would look
-- through the queue once for each job.
local function cancel_in_rq(id, rq_job)
  redis.call('HSET', rq_job, 'status', 'canceled')
  redis.call('ZADD', KEYS[2], now, id)
  if retention > 0 then
    redis.call('EXPIRE', rq_job, retention)
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - retention)
  end
end

-- A batch that was removed meanwhile does not come back.
local function count(id)
  if redis.call('EXISTS', KEYS[3]) == 0 then
    return
  end
  for field, number in pairs(counters) do
    redis.call('HINCRBY', KEYS[3], field, number)
  end
  redis.call('XADD', KEYS[4], '*', 'job_id', id, 'status', ARGV[5],
    'finish_reason', ARGV[6], 'empty', ARGV[7])
end

-- A batch goes with its last result. What is queued for it again makes it stay.
local function expire_finished()
  local counts = redis.call('HMGET', KEYS[3], 'total', 'done', 'failed', 'cancelled')
  for i = 1, 4 do
    counts[i] = tonumber(counts[i] or 0)
  end
  if counts[2] + counts[3] + counts[4] >= counts[1] then
    for i = 3, 5 do
      redis.call('EXPIRE', KEYS[i], retention)
    end
  end
end

local outcomes = {}
for job = 0, (#KEYS - 7) / 3 - 1 do
  local result, stream, rq_job = unpack(KEYS, 8 + 3 * job, 10 + 3 * job)
  local id, attempt, text, short = unpack(ARGV, 9 + 4 * job, 12 + 4 * job)
  local refused = refusal(id, result, rq_job)
  if not refused then
    store(id, attempt, text, short, result, stream)
    count(id)
    if guard == 'queued' then
      cancel_in_rq(id, rq_job)
    end
  end
  outcomes[job + 1] = refused or 'committed'
end
if retention > 0 then
  expire_finished()
end
return outcomes
