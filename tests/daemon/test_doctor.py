"""`thinkq doctor` on this machine: each fault is made, and must be found with its remedy."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.hub_cache import add_model
from support.processes import environment
from thinkq.client import locks, pause
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.doctor import command, doctor, queues, server, service, system
from thinkq.daemon.doctor.finding import Finding, Installation, Verdict, run
from thinkq.daemon.state import DaemonState

REDIS_ALONE = ("redis policy", "redis file", "redis memory", "clock", "workers", "leases")
"""Checks that need a server."""


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """A data directory of its own, as it is made at the first start."""
    (tmp_path / "home").mkdir(mode=0o700)
    return load_settings({}, home=str(tmp_path / "home"))


def site(settings: Settings, **changes: Any) -> Installation:
    """The installation with other settings."""
    return Installation(load_settings({}, home=settings.home, **changes))


def verdict(found: Verdict | None) -> Verdict:
    """The verdict of a check that applies; all but good ones come with a remedy."""
    assert found is not None
    assert (found.remedy is None) is (found.level == "ok")
    assert len(found.text.splitlines()) == 1
    return found


def level(found: Verdict | None) -> str:
    return verdict(found).level


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


# --- the whole ---


def test_qw_18_in_a_bare_environment_it_passes(tmp_path: Path) -> None:
    """As launchd starts things: no HOME, no LANG, a short PATH, and / for a directory."""
    bare = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONPATH": environment()["PYTHONPATH"],
        "THINKQ_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "thinkq.client", "doctor", "--json"],
        env=bare,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["ok"]
    names = [finding["name"] for finding in told["findings"]]
    assert {"settings", "python", "mlx", "model", "disk", "permissions", "redis"} <= set(names)
    assert not (tmp_path / "home").exists(), "it changes nothing"


def test_without_redis_nothing_is_asked_of_it(home: Settings) -> None:
    findings = by_name(command.examine({"THINKQ_HOME": home.home}))
    assert findings["redis"].level == "ok"
    assert not findings.keys() & set(REDIS_ALONE)


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}"


def test_a_redis_that_never_answers_costs_less_than_five_seconds(
    home: Settings, silent: str
) -> None:
    """The requirement itself is a time: nobody waits long for a doctor."""
    began = time.monotonic()
    findings = by_name(command.examine({"THINKQ_HOME": home.home, "THINKQ_REDIS_URL": silent}))
    assert time.monotonic() - began < 5
    assert findings["redis"].level == "fail"
    assert "no Redis answers at 127.0.0.1" in findings["redis"].text


def test_a_host_name_that_cannot_be_looked_up_in_time_is_told_as_no_answer(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time-out of a socket covers this."""
    freed, ended = threading.Event(), threading.Event()

    def look_up(*_: object, **__: object) -> list[object]:
        freed.wait(10)
        ended.set()
        return []

    monkeypatch.setattr(server, "REACH_S", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    url = "redis://:password@queue.example:6379"
    findings = by_name(command.examine({"THINKQ_HOME": home.home, "THINKQ_REDIS_URL": url}))
    assert findings["redis"].text.startswith("no Redis answers at queue.example:6379")
    assert not ended.is_set(), "it was not waited for"
    freed.set()
    assert ended.wait(10)


def test_bad_settings_are_a_finding_and_the_other_checks_go_on(home: Settings) -> None:
    (home.home_path / "settings.toml").write_text("max_bach = 3")
    findings = by_name(command.examine({"THINKQ_HOME": home.home}))
    assert findings["settings"].level == "fail"
    assert "did you mean `max_batch`?" in findings["settings"].text
    assert findings["python"].level == "ok"
    assert findings["disk"].text.endswith(home.home)


def test_leases_shorter_than_heartbeats_are_told(home: Settings) -> None:
    environ = {"THINKQ_HOME": home.home, "THINKQ_LEASE_S": "5"}
    found = by_name(command.examine(environ))["settings"]
    assert found.level == "warn"
    assert "lease_s 5 is not longer than heartbeat_s 10" in found.text


def test_a_check_that_crashes_is_a_finding(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at once."""

    def crash(*_: Any) -> Verdict:
        raise KeyError("first line\nsecond line")

    for checks in (system.CHECKS, service.CHECKS, server.CHECKS, queues.CHECKS):
        for name in checks:
            monkeypatch.setitem(checks, name, crash)
    findings = by_name(command.examine({"THINKQ_HOME": home.home}))
    for name in system.CHECKS | service.CHECKS:
        assert findings[name].level == "fail"
        assert "could not be checked (KeyError" in findings[name].text


def test_the_command_shows_remedies_counts_and_an_exit_code(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THINKQ_HOME", home.home)
    assert CliRunner().invoke(doctor, []).exit_code == 0
    home.home_path.chmod(0o777)
    shown = CliRunner().invoke(doctor, [])
    assert shown.exit_code == 1
    lines = shown.output.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("fail"))
    assert lines[place].split(maxsplit=2)[1:] == [
        "permissions",
        f"others may write into {home.home}",
    ]
    assert lines[place + 1].strip() == f"-> run `chmod 700 {home.home}`"
    assert "1 failure" in lines[-1]
    as_json = CliRunner().invoke(doctor, ["--json"])
    assert as_json.exit_code == 1
    assert json.loads(as_json.output)["ok"] is False


def test_several_lines_of_a_text_stay_in_their_column() -> None:
    finding = Finding(name="daemon", level="fail", text="first:\nsecond", remedy="do this")
    head, second, remedy, *_ = command.report([finding])
    assert head.index("first") == second.index("second") == remedy.index("->")


# --- the machine ---


def test_what_runs_here_is_named(home: Settings) -> None:
    assert sys.version.split()[0] in verdict(system.python(site(home))).text
    assert "mlx-lm 0." in verdict(system.mlx(site(home))).text


def test_a_python_that_is_too_old_or_for_intel_fails(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert "Rosetta" in str(verdict(system.python(site(home))).remedy)
    monkeypatch.setattr(system, "MINIMUM_PYTHON", (9, 0))
    assert "too old" in verdict(system.python(site(home))).text


def test_a_missing_mlx_is_told_once(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    assert level(system.mlx(site(home))) == "fail"
    assert run("blas", partial(system.blas, site(home))) is None


def gcc(directory: Path, body: str) -> dict[str, str]:
    """An environment whose g++ is a stand-in."""
    program = directory / "g++"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin"}


@pytest.mark.skipif(sys.platform == "darwin", reason="MLX on a Mac needs no compiler")
def test_a_compiler_that_cannot_compile_fails_and_none_at_all_does_not(
    home: Settings, tmp_path: Path
) -> None:
    """MLX goes on without g++, but not with one that fails."""
    broken = gcc(tmp_path, "echo 'fatal error: no cc1plus' >&2; exit 1")
    found = verdict(system.compiler(site(home), broken))
    assert (found.level, "no cc1plus" in found.text) == ("fail", True)
    assert level(system.compiler(site(home), broken | {"MLX_DISABLE_COMPILE": "1"})) == "ok"
    assert level(system.compiler(site(home), {"PATH": "/nowhere"})) == "ok"
    assert level(system.compiler(site(home), gcc(tmp_path, "exit 0"))) == "ok"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.skipif(sys.platform == "darwin", reason="MLX on a Mac needs no compiler")
def test_the_real_compiler_compiles_the_trial(home: Settings) -> None:
    assert verdict(system.compiler(site(home))).text == "g++ compiles"


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("/venv/mlx_cpu.libs/libblas-bd8a282c.so.3.10.0", "warn"),
        ("/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so", "ok"),
        ("/opt/intel/libmkl_rt.so.2", "ok"),
    ],
)
def test_the_reference_blas_is_told(
    home: Settings, tmp_path: Path, library: str, expected: str
) -> None:
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 00000000 08:01 1234 {library}\n7ffe-7fff rw-p 0 00:00 0\n")
    assert level(system.blas(site(home), maps)) == expected
    assert system.blas(site(home), tmp_path / "none") is None


def test_the_model_of_the_settings_is_judged(home: Settings, tmp_path: Path) -> None:
    """The demo has 6.7 MB of weights."""
    assert level(system.model(site(home))) == "ok"
    assert level(system.model(site(home, memory_limit_gb=0.007))) == "warn"
    assert level(system.model(site(home, memory_limit_gb=0.005))) == "fail"
    assert level(system.model(site(home, model="not/downloaded"))) == "warn"
    unknown = add_model(tmp_path, "a/b", {"config.json": {"model_type": "whisper"}})
    assert level(system.model(site(home, model=str(unknown)))) == "fail"


def test_a_damaged_cache_is_told(
    home: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert level(system.cache(site(home))) == "ok"
    (tmp_path / "models--bad--model").mkdir()
    assert "bad/model: damaged" in verdict(system.cache(site(home))).text


@pytest.mark.parametrize(("free", "expected"), [(1e8, "fail"), (1e9, "warn"), (1e11, "ok")])
def test_a_full_disk_is_told(
    home: Settings, monkeypatch: pytest.MonkeyPatch, free: float, expected: str
) -> None:
    usage = shutil.disk_usage(home.home)._replace(free=int(free))
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    assert level(system.disk(site(home))) == expected


# --- what thinkq has here ---


@pytest.mark.parametrize(("mode", "expected"), [(0o700, "ok"), (0o755, "warn"), (0o770, "fail")])
def test_an_open_data_directory_is_told(home: Settings, mode: int, expected: str) -> None:
    home.home_path.chmod(mode)
    found = verdict(service.permissions(site(home)))
    assert found.level == expected
    assert found.level == "ok" or f"chmod 700 {home.home}" in str(found.remedy)


def test_a_file_of_another_user_is_told(home: Settings) -> None:
    """What a start with sudo leaves behind."""
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    log = home.logs_path / "worker.log"
    log.parent.mkdir()
    log.touch()
    os.chown(log, 1, 1)
    assert f"{log} belongs to another user" in verdict(service.permissions(site(home))).text


def test_the_daemon_and_its_worker_are_seen_by_their_locks(home: Settings) -> None:
    assert "no daemon runs" in verdict(service.daemon(site(home))).text
    of_daemon = locks.take(home.daemon_lock)
    assert of_daemon
    assert level(service.daemon(site(home))) == "warn"
    of_worker = locks.take(home.worker_lock)
    assert of_worker
    assert level(service.daemon(site(home))) == "ok"
    of_worker.close()
    of_daemon.close()


def ended_as(name: Any, last_error: str | None) -> DaemonState:
    """What a daemon's state file tells."""
    return DaemonState(state=name, last_error=last_error, pid=7, since=1.0, model="demo")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ended_as("crash_loop", "worker ended 3 times; its log ends with:\nno such model"), "fail"),
        (ended_as("stopped", "the daemon with pid 7 was killed"), "warn"),
        (ended_as("stopped", None), "ok"),
        (None, "ok"),
    ],
)
def test_the_end_of_the_last_daemon_is_explained(
    home: Settings, state: DaemonState | None, expected: str
) -> None:
    found = service.daemon(Installation(home, read_state=lambda settings: state))
    assert found
    assert found.level == expected
    if state and state.last_error:
        assert state.last_error in found.text


def test_a_pause_is_told_with_its_reason(home: Settings) -> None:
    assert service.power(site(home)) is None
    lock = locks.take(home.daemon_lock)
    assert lock
    pause.pause(home, "the battery is at 5 %")
    assert "the battery is at 5 %" in verdict(service.power(site(home))).text
    lock.close()


def test_results_that_wait_on_the_disk_are_told(home: Settings) -> None:
    entry = home.home_path / "spool" / "one.json"
    entry.parent.mkdir()
    entry.touch()
    assert level(service.spool(site(home))) == "ok", "a worker is about to hand it over"
    os.utime(entry, (0, 0))
    assert "1 finished result" in verdict(service.spool(site(home))).text


def test_the_docs_have_every_check() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    named = [line.split("|")[1].strip() for line in docs.splitlines() if line.startswith("| ")]
    checks = system.CHECKS | service.CHECKS | server.CHECKS | queues.CHECKS
    assert named == ["check", "settings", *checks]
