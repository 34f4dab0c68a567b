"""All that `thinkq daemon status` tells."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import redis

from thinkq.client import keys, locks
from thinkq.client.connection import address, probe, unavailable
from thinkq.client.errors import RedisUnavailable
from thinkq.client.render import duration
from thinkq.client.settings import Settings
from thinkq.client.workers import WorkerStatus, workers
from thinkq.daemon import state
from thinkq.daemon.control import step
from thinkq.daemon.service import Service, installed
from thinkq.daemon.state import ChildState, DaemonState


class RedisStatus(msgspec.Struct, kw_only=True):
    """The Redis of the settings."""

    address: str
    answers: bool = False
    error: str | None = None
    """Why it does not answer."""
    version: str | None = None


class ServiceStatus(msgspec.Struct, kw_only=True):
    """Whether the daemon starts at login."""

    installed: bool
    path: str


class Status(msgspec.Struct, kw_only=True):
    """The daemon of one data directory and what it looks after. Times are Unix seconds."""

    running: bool
    state: str
    """starting, running, crash_loop, stopped, or never_started."""
    home: str
    model: str
    """The model of jobs that name none."""
    redis: RedisStatus
    service: ServiceStatus
    pid: int | None = None
    since: float | None = None
    children: list[ChildState] = []
    workers: list[WorkerStatus] = []
    """All that use this Redis, those of other machines included."""
    queue: dict[str, int] = {}
    """Jobs that wait, by priority."""
    memory: dict[str, int] = {}
    """Bytes in RAM of the daemon, its worker and its Redis."""
    rows: int = 0
    tokens_per_s: float = 0.0
    last_error: str | None = None
    logs: str


def look(settings: Settings, service: Service) -> Status:
    """Look at everything once; takes at most some seconds."""
    known = state.read(settings)
    pid = locks.holder(settings.daemon_lock)
    status = Status(
        running=pid is not None,
        state=known.state if known else "never_started",
        home=settings.home,
        model=known.model if known and known.alive else settings.model,
        redis=RedisStatus(address=address(settings)),
        service=ServiceStatus(installed=installed(service), path=str(service.path)),
        pid=pid,
        since=known.since if known else None,
        children=known.children if known else [],
        last_error=_last_error(known) if known else None,
        logs=str(settings.logs_path),
    )
    status.memory = _memory(status)
    try:
        with probe(settings) as connection:
            _ask(status, connection)
    except redis.RedisError as error:
        status.redis.error = str(unavailable(settings, error))
    except (RedisUnavailable, msgspec.DecodeError) as error:
        status.redis.error = str(error)
    return status


def _ask(status: Status, connection: redis.Redis) -> None:
    info: Any = connection.info()
    valkey = info.get("valkey_version")
    status.redis.answers = True
    status.redis.version = f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"
    status.memory["redis"] = info["used_memory_rss"]
    status.queue = {name: connection.llen(f"rq:queue:{key}") for name, key in keys.QUEUES.items()}
    status.workers = workers(connection)
    status.rows = sum(line.rows for line in status.workers)
    status.tokens_per_s = sum(line.tokens_per_s for line in status.workers)


def _last_error(known: DaemonState) -> str | None:
    ended = [child for child in known.children if child.last_ending]
    if known.last_error or not ended:
        return known.last_error
    last = max(ended, key=lambda child: child.last_ended or 0)
    return f"{last.name} {last.last_ending}, {_passed(last.last_ended)} ago"


def _memory(status: Status) -> dict[str, int]:
    """Bytes by name of process; those that cannot be asked are left out."""
    workers = [child.pid for child in status.children if child.name == "worker"]
    pids = {"daemon": status.pid, "worker": next(iter(workers), None)}
    sizes = resident(pid for pid in pids.values() if pid)
    return {name: sizes[pid] for name, pid in pids.items() if pid in sizes}


def resident(pids: Iterable[int]) -> dict[int, int]:
    """Bytes that processes hold in RAM, by pid; nothing where there is no `ps`."""
    asked = ",".join(map(str, pids))
    if not asked:
        return {}
    try:
        shown = subprocess.run(["ps", "-o", "pid=,rss=", "-p", asked], capture_output=True)
    except FileNotFoundError:
        return {}
    return {int(pid): int(kib) * 1024 for pid, kib in map(bytes.split, shown.stdout.splitlines())}


def lines(status: Status) -> Iterator[str]:
    """The status for people."""
    yield f"daemon      {_daemon(status)}"
    yield f"redis       {_redis(status.redis)}"
    for text in _workers(status):
        yield f"worker      {text}"
    if status.queue:
        yield "queue       " + ", ".join(f"{n} {name}" for name, n in status.queue.items())
    if status.memory:
        sizes = (f"{name} {size / 1e6:,.0f} MB" for name, size in status.memory.items())
        yield "memory      " + ", ".join(sizes)
    yield f"service     {_service(status.service)}"
    if status.last_error:
        yield "last error  " + status.last_error.replace("\n", "\n            ")
    yield f"logs        {status.logs}"
    if status.state == "crash_loop" and not status.running:
        yield "It gave up. Correct what the last error says, then `thinkq daemon start`."


def _daemon(status: Status) -> str:
    lasted = _passed(status.since)
    if status.running:
        what = f"{status.state} for {lasted} (pid {status.pid})"
    elif status.state == "crash_loop":
        what = f"not running: gave up {lasted} ago, after crashes"
    else:
        what = f"not running: {f'stopped {lasted} ago' if status.since else 'never started'}"
    return f"{what}, {status.home}"


def _redis(server: RedisStatus) -> str:
    if server.answers:
        return f"{server.version} answers at {server.address}"
    return server.error or "not asked"


def _workers(status: Status) -> Iterator[str]:
    seen = {line.pid for line in status.workers}
    for child in status.children:
        if status.running and child.name == "worker" and child.pid not in seen:
            yield f"{step(child) or 'waits for Redis'}; its model is {status.model}"
    yield from map(_worker, status.workers)


def _worker(line: WorkerStatus) -> str:
    return (
        f"{line.state}: {line.model or 'no model yet'}, {line.rows}/{line.max_batch} rows, "
        f"{line.tokens_per_s:,.1f} tokens/s (pid {line.pid})"
    )


def _service(service: ServiceStatus) -> str:
    if service.installed:
        return f"installed: {service.path}"
    return "not installed; `thinkq daemon install` starts it at each login"


def _passed(since: float | None) -> str:
    return duration(max(0.0, time.time() - (since or 0.0)))
