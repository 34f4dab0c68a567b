"""When a child is started, started again, and given up: by the clock that the test holds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support import wait_until
from thinkq.daemon.child import Child
from thinkq.daemon.keeper import CrashLoop, Keeper


class Puppet(Child):
    """A child without a process: the test says whether it lives and is ready."""

    def __init__(self, log: Path) -> None:
        super().__init__("puppet", ["unused"], log)
        self.starts = 0
        self.may_start = True
        self.lives = self.works = False

    def start(self) -> bool:
        self.starts += self.may_start
        self.lives = self.may_start
        return self.may_start

    def alive(self) -> bool:
        return self.lives

    def ready(self) -> bool:
        return self.works


@pytest.fixture
def puppet(tmp_path: Path) -> Puppet:
    log = tmp_path / "puppet.log"
    log.write_text("the first line\nno such model\n")
    return Puppet(log)


def die_at(keeper: Keeper, puppet: Puppet, now: float) -> float:
    """The child dies; the seconds after which the keeper starts it again."""
    puppet.lives = False
    starts = puppet.starts
    keeper.tick(now)
    for wait in range(1, 61):
        keeper.tick(now + wait)
        if puppet.starts > starts:
            keeper.tick(now + wait)
            return wait
    raise AssertionError("not started again within a minute")


def test_it_starts_the_child_once_and_leaves_it_alone_while_it_lives(puppet: Puppet) -> None:
    keeper = Keeper(puppet)
    for now in range(5):
        keeper.tick(now)
    assert puppet.starts == 1


def test_the_delay_doubles_up_to_half_a_minute(puppet: Puppet) -> None:
    puppet.works = True
    keeper = Keeper(puppet)
    keeper.tick(0)
    keeper.tick(0)
    waits, now = [], 1.0
    for _ in range(7):
        waits.append(wait := die_at(keeper, puppet, now))
        now += wait + 1
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_a_minute_of_life_resets_the_delay(puppet: Puppet) -> None:
    puppet.works = True
    keeper = Keeper(puppet)
    keeper.tick(0)
    keeper.tick(0)
    assert [die_at(keeper, puppet, 1), die_at(keeper, puppet, 10)] == [1, 2]
    assert die_at(keeper, puppet, 12 + 59) == 4
    assert die_at(keeper, puppet, 75 + 60) == 1


def test_three_deaths_before_it_was_ready_are_a_crash_loop(puppet: Puppet) -> None:
    keeper = Keeper(puppet)
    keeper.tick(0)
    die_at(keeper, puppet, 1)
    die_at(keeper, puppet, 3)
    puppet.lives = False
    with pytest.raises(CrashLoop, match=r"(?s)puppet ended 3 times.*puppet\.log.*no such model"):
        keeper.tick(10)


def test_having_been_ready_once_starts_the_count_anew(puppet: Puppet) -> None:
    """A job that kills the worker is the affair of the worker, which was ready each time."""
    keeper = Keeper(puppet)
    keeper.tick(0)
    die_at(keeper, puppet, 1)
    die_at(keeper, puppet, 3)
    puppet.works = True
    keeper.tick(6)
    for now in (10, 20, 40):
        die_at(keeper, puppet, now)


def test_a_child_that_must_wait_is_asked_again_without_delay(puppet: Puppet) -> None:
    puppet.may_start = False
    keeper = Keeper(puppet)
    for now in range(10):
        keeper.tick(now)
    puppet.may_start = True
    keeper.tick(10)
    assert puppet.starts == 1


def test_a_real_child_ends_at_the_end_of_its_stdin(tmp_path: Path) -> None:
    real = Child("cat", ["/bin/cat"], tmp_path / "cat.log")
    real.start()
    assert real.alive()
    real._close_lifeline()
    wait_until(lambda: not real.alive())
    assert real.ending() == "ended with exit code 0"


def test_a_stubborn_child_is_killed_with_its_whole_session(tmp_path: Path) -> None:
    log = tmp_path / "sh.log"
    script = "trap '' TERM; /bin/sleep 60 & echo ready; wait; exec /bin/sleep 60"
    stubborn = Child("sh", ["/bin/sh", "-c", script], log)
    stubborn.start()
    wait_until(lambda: log.read_text() == "ready\n")
    stubborn.stop(0.1)
    assert stubborn.ending() == "was killed by signal 9"


def test_last_words_are_those_of_the_last_process_alone(tmp_path: Path) -> None:
    """What the one before it said may be about another fault."""
    script = f"read line < {tmp_path}/line; echo $line"
    echo = Child("echo", ["/bin/sh", "-c", script], tmp_path / "echo.log")
    for line in ("first", "second"):
        (tmp_path / "line").write_text(f"{line}\n")
        echo.start()
        wait_until(lambda: not echo.alive())
        assert echo.last_words() == line


def test_the_report_tells_of_the_present_and_of_the_last_ending(puppet: Puppet) -> None:
    keeper = Keeper(puppet)
    assert keeper.report().state == "waiting"
    keeper.tick(0)
    assert keeper.report().state == "starting"
    puppet.works = True
    keeper.tick(1)
    assert (keeper.report().state, keeper.report().restarts) == ("ready", 0)
    puppet.lives = False
    before = time.time()
    keeper.tick(2)
    report = keeper.report()
    assert (report.state, report.pid) == ("waiting", None)
    assert report.last_ending == "has not ended"
    assert report.last_ended
    assert before <= report.last_ended <= time.time()
    keeper.tick(10)
    assert (keeper.report().state, keeper.report().restarts) == ("starting", 1)
