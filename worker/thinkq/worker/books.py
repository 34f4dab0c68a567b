"""What RQ's books say about this worker and its jobs.

RQ's own workers run one job at a time. Here many executions are open at once in one process, each
with a lease of its own in RQ's registry of started jobs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import uuid4

import redis
from rq import Queue
from rq.exceptions import NoSuchJobError
from rq.executions import Execution
from rq.job import Job as RQJob
from rq.job import JobStatus
from rq.registry import clean_registries
from rq.suspension import is_suspended
from rq.worker import WorkerStatus
from rq.worker_registration import clean_worker_registry

from thinkq.client import keys
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.settings import Settings
from thinkq.worker.endings import Endings
from thinkq.worker.lease import GuardedJob, Lease

_log = logging.getLogger(__name__)

NAME_PREFIX: Final = "thinkq"


class Books(Endings):
    """This worker as RQ sees it. Methods raise redis.RedisError when Redis does not take it."""

    job_class = GuardedJob

    def __init__(self, connection: redis.Redis, settings: Settings, host: str) -> None:
        """`host` is the id of this installation. The name is fresh: RQ remembers a dead one."""
        super().__init__(
            list(keys.QUEUES.values()),
            name=f"{NAME_PREFIX}-{host}-{uuid4().hex[:8]}",
            connection=connection,
            serializer=MsgpackSerializer,
            worker_ttl=max(1, int(settings.lease_s)),
            log_job_description=False,
        )
        self.host = host
        self.stop_requests: set[str] = set()
        """Ids of executions that RQ's commands want stopped."""
        self._lease_s = max(1, int(settings.lease_s))
        self._popped: set[str] = set()

    # --- this worker ---

    def enter(self) -> None:
        """Show the queues in RQ's lists, also empty ones, and listen for RQ's commands."""
        for queue in self.queues:
            self.connection.sadd(Queue.redis_queues_keys, queue.key)
        if self.pubsub_thread is None:
            self.subscribe()  # type: ignore[no-untyped-call]  # RQ's

    def leave(self) -> None:
        """Disappear from RQ's lists."""
        self.connection.hdel(keys.WORKERS, self.name)
        self.teardown()  # type: ignore[no-untyped-call]  # RQ's

    def beat(self, leases: Iterable[Lease]) -> None:
        """Renew this worker's registration and its leases; a lease that is gone stays gone."""
        if not self.connection.hexists(self.key, "birth"):
            # At the start, and after this machine has slept for longer than the registration lasts;
            # what is there then is a torso that was written to after its end.
            self.connection.delete(self.key)
            self.register_birth()  # type: ignore[no-untyped-call]  # RQ's
        self.heartbeat()
        for lease in leases:
            self.maintain_heartbeats(lease.job, lease.execution)

    def show(self, *, busy: bool, line: bytes) -> None:
        """Publish the worker's state: to RQ, and as a line of JSON to people."""
        self.set_state(WorkerStatus.BUSY if busy else WorkerStatus.IDLE)
        self.connection.hset(keys.WORKERS, self.name, line)

    @property
    def suspended(self) -> bool:
        """Whether `rq suspend` is in force."""
        return bool(is_suspended(self.connection))

    def get_heartbeat_ttl(self, job: RQJob, working_time: float = 0.0) -> int:
        """Seconds that a lease lasts, whatever the job's time-out, which is the engine's."""
        return self._lease_s

    def handle_payload(self, message: dict[str, Any]) -> None:
        """Note RQ's stop commands (in RQ's listening thread); leave the others to RQ."""
        payload = json.loads(message["data"])
        if payload["command"] not in ("stop-job", "stop-execution"):
            super().handle_payload(message)  # type: ignore[no-untyped-call]  # RQ's
            return
        for execution in list(self.executions.values()):
            named = payload.get("execution_id", execution.id), payload.get("job_id")
            if named == (execution.id, execution.job_id):
                self.stop_requests.add(execution.id)

    def _pubsub_exception_handler(self, *_: Any) -> None:
        # RQ ends its listening thread at a time-out, and logs every failure to connect as an error.
        time.sleep(1)

    # --- what others have left ---

    def clean_registries(self) -> None:
        """Queue again what workers of any host have abandoned; call it once in a lease's time."""
        popped: set[str] = set()
        for queue in self.queues:
            # RQ's own way to take this lock would keep others out for 15 minutes after a crash.
            lock = queue.registry_cleaning_key
            if self.connection.set(lock, self.name, nx=True, ex=self._lease_s):
                clean_registries(queue)
                clean_worker_registry(queue)
                popped |= self._clean_intermediate(queue)
                self.connection.delete(lock)
        self._popped = popped

    def _clean_intermediate(self, queue: Queue) -> set[str]:
        # Not RQ's way: it takes the job out also when Redis has refused to queue it again.
        leases = queue.started_job_registry.get_job_and_execution_ids(cleanup=False)
        started = {job_id for job_id, _ in leases}
        popped = set(queue.intermediate_queue.get_job_ids()) - started
        for job_id in popped & self._popped:
            self.put_back(queue, job_id)
        return popped - self._popped

    # --- one job ---

    def pop(self, queue: Queue) -> str | None:
        """Move the queue's first job id to the intermediate queue, where no crash can lose it."""
        moved = self.queue_class.lmove(self.connection, queue.key, None)
        return moved[1].decode() if moved else None

    def put_back(self, queue: Queue, job_id: str) -> None:
        """Undo `pop`."""
        with self.connection.pipeline() as pipeline:
            pipeline.lrem(queue.intermediate_queue_key, 1, job_id)
            queue.push_job_id(job_id, pipeline=pipeline, at_front=True)
            pipeline.execute()

    def attempts(self, job_id: str) -> int:
        """How many attempts of the job were admitted and not given back."""
        return int(self.connection.hget(keys.ATTEMPTS, job_id) or 0)

    def popped(self, queue: Queue, job_id: str) -> RQJob | None:
        """A popped job; None if it was deleted, or cancelled while it waited: its id is dropped."""
        job = self._fetch(job_id)
        if job is None or job.get_status(refresh=False) == JobStatus.CANCELED:
            queue.intermediate_queue.remove(job_id)
            return None
        return job

    def start(self, queue: Queue, job: RQJob) -> Lease | None:
        """Open an execution of a popped job and count the attempt; None if others have it again.

        One transaction instead of RQ's two: a crash leaves the job either in the intermediate
        queue, or started with its lease, its worker's name and its attempt.
        """
        job_id = job.id
        with self.connection.pipeline() as pipeline:
            execution = Execution.create(job, self._lease_s, pipeline, worker_name=self.name)
            job.prepare_for_execution(self.name, pipeline)
            pipeline.persist(job.key)
            pipeline.lrem(queue.intermediate_queue_key, 1, job_id)
            pipeline.exists(keys.stream(job_id))
            pipeline.exists(keys.result(job_id))
            pipeline.hincrby(keys.ATTEMPTS, job_id, 1)
            *_, popped, streamed, answered, attempt = pipeline.execute()
        self.executions[execution.id] = execution
        lease = Lease(job, queue, execution, attempt, bool(answered), bool(streamed))
        if not popped:
            self._yield(lease)
            return None
        return lease

    def _yield(self, lease: Lease) -> None:
        # We took so long that the job was taken for stuck and is in the queue again.
        with self.connection.pipeline() as pipeline:
            self.cleanup_execution(lease.job, pipeline, lease.execution)
            pipeline.hincrby(keys.ATTEMPTS, lease.job.id, -1)
            pipeline.execute()

    def reopen(self, queue: Queue, job_id: str, execution_id: str) -> Lease | None:
        """The lease of an execution that another process began; None if the job was deleted."""
        job = self._fetch(job_id)
        if job is None:
            return None
        execution = Execution(execution_id, job_id, self.connection, job.worker_name or "")
        return Lease(job, queue, execution, self.attempts(job_id))

    def abandon(self, lease: Lease) -> None:
        """Forget an execution whose lease is gone; the job itself is not ours to touch."""
        with self.connection.pipeline() as pipeline:
            self.cleanup_execution(lease.job, pipeline, lease.execution)
            pipeline.execute()

    def give_back(self, lease: Lease, *, refund: bool) -> None:
        """Put the job at the front of its queue; with `refund` the attempt does not count."""
        if self.lost([lease]):
            return
        with self.connection.pipeline() as pipeline:
            # First, because it begins the transaction.
            lease.queue.enqueue_job(lease.job, pipeline=pipeline, at_front=True)
            self.cleanup_execution(lease.job, pipeline, lease.execution)
            if refund:
                pipeline.hincrby(keys.ATTEMPTS, lease.job.id, -1)
            pipeline.execute()

    def lost(self, leases: Sequence[Lease]) -> list[Lease]:
        """Those whose job was deleted, or swept because this worker was not heard of."""
        with self.connection.pipeline(transaction=False) as pipeline:
            for lease in leases:
                pipeline.zscore(lease.queue.started_job_registry.key, lease.member)
            return [
                lease
                for lease, score in zip(leases, pipeline.execute(), strict=True)
                if score is None
            ]

    def cancelled(self, leases: Sequence[Lease]) -> list[Lease]:
        """Those whose cancellation was asked for, by thinkq or by a command of RQ."""
        if not leases:
            return []
        asked = self.connection.smismember(keys.CANCELLED, [lease.job.id for lease in leases])
        return [
            lease
            for lease, flag in zip(leases, asked, strict=True)
            if flag or lease.execution.id in self.stop_requests
        ]

    def _fetch(self, job_id: str) -> RQJob | None:
        try:
            return self.job_class.fetch(job_id, self.connection, self.serializer)
        except NoSuchJobError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # RQ itself does not write such a job; it must not end the worker again and again.
            _log.warning("job %s is broken (%s); it is dropped", job_id, type(error).__name__)
            return None
