"""What a shell completes, asked for as the shell's script does."""

from __future__ import annotations

import subprocess
import sys

import pytest
import redis

from support.processes import environment
from support.simulated_worker import some_jobs
from thinkq.client.cli import main
from thinkq.client.queue import JobQueue
from thinkq.client.settings import Settings


def completed(settings: Settings, line: str) -> list[str]:
    """The words that bash is offered for the last word of the line."""
    words = line.split(" ")
    variables = {
        "THINKQ_HOME": settings.home,
        "THINKQ_REDIS_URL": settings.effective_redis_url,
        "_THINKQ_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    shell = subprocess.run(
        [sys.executable, "-m", "thinkq.client"],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shell.stderr == ""
    return [word.partition(",")[2] for word in shell.stdout.splitlines() if word]


def test_commands_and_options_are_completed(settings: Settings) -> None:
    """Also those of other layers, by name and without loading them."""
    assert completed(settings, "thinkq re") == ["results", "report", "retry"]
    assert "daemon" in completed(settings, "thinkq d")
    assert completed(settings, "thinkq run --skip") == ["--skip-invalid"]


def test_batches_are_completed_by_their_ids(settings: Settings, connection: redis.Redis) -> None:
    JobQueue(connection).submit("bcomplete1", some_jobs("complete", 1))
    JobQueue(connection).submit("bcomplete2", some_jobs("complete", 1))
    for command in ("status", "watch", "results", "report", "cancel", "retry", "rm"):
        offered = completed(settings, f"thinkq {command} bcomp")
        assert sorted(offered) == ["bcomplete1", "bcomplete2"], command


def test_where_redis_is_away_nothing_is_offered_and_nothing_told(settings: Settings) -> None:
    """The line that is being typed is no place for an error."""
    away = Settings(home=settings.home, redis_url=f"unix://{settings.home}/nobody.sock")
    assert completed(away, "thinkq status b") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named, or that of the caller."""
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert main(["completion", shell]) == 0
    named = capsys.readouterr().out
    assert "_THINKQ_COMPLETE" in named
    assert main(["completion"]) == 0
    assert capsys.readouterr().out == named
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["completion"]) == 2
