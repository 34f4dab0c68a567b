"""The daemon as a person has it: started, forgotten, killed in every way, and asked how it is."""

from __future__ import annotations

import json
import os
import plistlib
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from support import wait_until
from support.processes import thinkq
from support.queues import done_entries, left_over
from thinkq.client import batches, keys, locks
from thinkq.client.connection import connect, probe
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import state

JOBS = Path(__file__).parents[2] / "examples" / "jobs.jsonl"
TOTAL = len(JOBS.read_text("utf-8").splitlines())


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Settings]:
    """A data directory; whatever runs on it at the end is stopped."""
    settings = load_settings({}, home=str(tmp_path / "home"))
    yield settings
    stopped = thinkq(settings.home_path, "daemon", "stop")
    assert stopped.returncode == 0, stopped.stderr


@pytest.fixture
def started(home: Settings) -> Settings:
    """A data directory with a daemon in the background."""
    outcome = thinkq(home.home_path, "daemon", "start")
    assert outcome.returncode == 0, outcome.stderr
    return home


def status(home: Settings) -> Any:
    """`thinkq daemon status --json`."""
    return json.loads(thinkq(home.home_path, "daemon", "status", "--json").stdout)


def is_all_gone(home: Settings) -> bool:
    """Each process holds a lock while it lives, which the kernel takes back."""
    every = (home.daemon_lock, home.worker_lock, home.home_path / "redis.lock")
    return all(locks.holder(path) is None for path in every)


def submit(home: Settings) -> str:
    outcome = thinkq(home.home_path, "submit", str(JOBS))
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout.strip()


def redis_pid(home: Settings) -> int:
    with probe(home) as connection:
        return int(connection.info("server")["process_id"])


def worker_pid(home: Settings) -> int:
    return locks.holder(home.worker_lock) or 0


def daemon_pid(home: Settings) -> int:
    return locks.holder(home.daemon_lock) or 0


def wait_for_results(home: Settings, batch: str, number: int) -> None:
    def have() -> bool:
        try:
            with probe(home) as connection:
                return batches.status(connection, batch).ended >= number
        except redis.RedisError:  # it may be on its way up
            return False

    wait_until(have, 60)


@pytest.mark.parametrize("victim", [worker_pid, redis_pid])
def test_what_is_killed_in_mid_batch_comes_back_and_nothing_is_lost(
    started: Settings, victim: Callable[[Settings], int]
) -> None:
    """SIGKILL of a child: another takes its place, and each job ends once."""
    batch = submit(started)
    wait_for_results(started, batch, 3)
    former = victim(started)
    supervisor = daemon_pid(started)
    os.kill(former, signal.SIGKILL)
    wait_for_results(started, batch, TOTAL)
    assert victim(started) not in (0, former)
    assert daemon_pid(started) == supervisor
    check_the_books(started, batch)
    error = status(started)["last_error"]
    assert "killed by signal 9" in error or "exit code 137" in error


def test_a_killed_supervisor_takes_its_children_along_and_a_new_one_goes_on(
    started: Settings,
) -> None:
    """No orphans: they would hold the data against the next daemon."""
    batch = submit(started)
    wait_for_results(started, batch, 3)
    os.kill(daemon_pid(started), signal.SIGKILL)
    wait_until(lambda: is_all_gone(started))
    told = thinkq(started.home_path, "daemon", "status")
    assert told.returncode == 3
    assert "was killed, or the machine went down" in told.stdout
    again = thinkq(started.home_path, "daemon", "start", "--wait")
    assert again.returncode == 0, again.stderr
    wait_for_results(started, batch, TOTAL)
    check_the_books(started, batch)


def check_the_books(home: Settings, batch: str) -> None:
    """Every job has one result and one end, and nothing is open."""
    with connect(home) as connection:
        ids = batches.job_ids(connection, batch)
        wait_until(lambda: not left_over(connection))
        assert connection.exists(*map(keys.result, ids)) == TOTAL
        assert done_entries(connection, ids) == [1] * TOTAL
        assert connection.xlen(keys.batch_events(batch)) == TOTAL


def test_starting_tells_what_runs_and_stopping_leaves_nothing(home: Settings) -> None:
    first = thinkq(home.home_path, "daemon", "start", "--wait")
    pid = daemon_pid(home)
    assert first.returncode == 0
    assert "redis is ready" in first.stderr
    assert "worker is ready" in first.stderr
    assert "running for " in first.stdout
    assert f"(pid {pid})" in first.stdout
    assert os.getsid(pid) == pid, "a hangup of the terminal would reach it"
    again = thinkq(home.home_path, "daemon", "start", "--wait")
    assert (again.returncode, daemon_pid(home)) == (0, pid)
    assert f"already running (pid {pid})" in again.stderr
    for text in (first.stderr, again.stderr):
        assert "Traceback" not in text
    stopped = thinkq(home.home_path, "daemon", "stop")
    assert (stopped.returncode, is_all_gone(home)) == (0, True)
    assert f"(pid {pid}) has stopped" in stopped.stderr
    left = state.read(home)
    assert left
    assert (left.state, left.last_error) == ("stopped", None)
    assert [(child.state, child.pid) for child in left.children] == [("stopped", None)] * 2
    assert thinkq(home.home_path, "daemon", "stop").returncode == 0


def test_a_restart_is_another_daemon(started: Settings) -> None:
    former = daemon_pid(started)
    outcome = thinkq(started.home_path, "daemon", "restart")
    assert outcome.returncode == 0, outcome.stderr
    assert daemon_pid(started) not in (0, former)


def test_the_status_names_everything(started: Settings) -> None:
    assert thinkq(started.home_path, "daemon", "start", "--wait").returncode == 0
    wait_until(lambda: status(started)["workers"])
    found = status(started)
    assert found["running"] is True
    assert (found["state"], found["pid"]) == ("running", daemon_pid(started))
    assert (found["home"], found["model"]) == (started.home, "demo")
    assert found["redis"]["answers"] is True
    assert found["queue"] == {"high": 0, "normal": 0, "low": 0}
    assert set(found["memory"]) == {"daemon", "worker", "redis"}
    assert all(1e6 < size < 1e10 for size in found["memory"].values())
    assert (found["rows"], found["tokens_per_s"], found["last_error"]) == (0, 0, None)
    assert found["service"]["installed"] is False
    shown = thinkq(started.home_path, "daemon", "status")
    assert shown.returncode == 0
    for word in ("daemon", "redis", "worker", "queue", "memory", "service", "logs"):
        assert any(line.startswith(word) for line in shown.stdout.splitlines())


def test_a_run_beside_a_daemon_uses_it(started: Settings, tmp_path: Path) -> None:
    short = tmp_path / "short.jsonl"
    short.write_text(JOBS.read_text("utf-8").splitlines(keepends=True)[0], "utf-8")
    pid = daemon_pid(started)
    outcome = thinkq(started.home_path, "run", str(short))
    assert outcome.returncode == 0, outcome.stderr
    assert daemon_pid(started) == pid


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(started: Settings) -> None:
    pid = daemon_pid(started)
    second = thinkq(started.home_path, "daemon", "run")
    assert second.returncode == 1
    assert f"a daemon with pid {pid} already runs for {started.home}" in second.stderr
    assert "Traceback" not in second.stderr
    assert status(started)["pid"] == pid, "the second one must not write the first one's state"


def test_a_model_that_is_not_there_ends_in_a_state_that_explains_itself(home: Settings) -> None:
    """A crash loop: the daemon gives up, `start --wait` and every later `status` say why."""
    outcome = thinkq(home.home_path, "daemon", "start", "--wait", THINKQ_MODEL="/nowhere")
    assert outcome.returncode == 1
    assert "worker ended 3 times before it was ready" in outcome.stderr
    assert "/nowhere" in outcome.stderr
    wait_until(lambda: is_all_gone(home))
    found = state.read(home)
    assert found
    assert found.state == "crash_loop"
    told = thinkq(home.home_path, "daemon", "status")
    assert told.returncode == 3
    assert "gave up" in told.stdout
    assert "'/nowhere' cannot be loaded" in told.stdout
    assert "then `thinkq daemon start`" in told.stdout


@pytest.mark.parametrize(
    ("started_by", "code"), [("", 1), ("thinkq-launchd", 0), ("thinkq-systemd", 78)]
)
@pytest.mark.parametrize("fault", [{"THINKQ_FOO": "1"}, {"THINKQ_REDIS_URL": "redis://192.0.2.1"}])
def test_what_a_new_start_would_only_repeat_does_not_make_a_service_spin(
    tmp_path: Path, started_by: str, code: int, fault: dict[str, str]
) -> None:
    """launchd starts again whatever fails; for a person a failure is a failure."""
    outcome = thinkq(tmp_path, "daemon", "run", LAUNCHED_BY=started_by, **fault)
    assert outcome.returncode == code
    assert len(outcome.stderr.splitlines()[-1]) > 20, "the reason is in the log"
    assert "Traceback" not in outcome.stderr


def test_qw_18_the_service_runs_with_nothing_but_its_property_list(home: Settings) -> None:
    """As launchd starts it: no environment but the list's own, and another directory than ours."""
    dry_run = ("install", "--dry-run", "--platform", "darwin", "--json")
    plan = json.loads(thinkq(home.home_path, "daemon", *dry_run).stdout)
    agent = plistlib.loads(plan["content"].encode())
    variables = [f"{name}={text}" for name, text in agent["EnvironmentVariables"].items()]
    with subprocess.Popen(
        ["/usr/bin/env", "-i", *variables, *agent["ProgramArguments"]],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as service:
        try:
            wait_until(lambda: worker_pid(home), 30)
            ran = thinkq(home.home_path, "ask", "What is 47 + 58?")
            assert (ran.returncode, ran.stdout.strip()) == (0, "105"), ran.stderr
        finally:
            service.send_signal(signal.SIGTERM)
            assert service.stderr
            said = service.stderr.read().decode()
        assert service.wait(5) == 0, said
    assert "Traceback" not in said
    assert is_all_gone(home)
