"""The `thinkq` command: data on stdout, everything else on stderr, never a traceback."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click
import redis

from thinkq.client.cli.lazy import LazyGroup
from thinkq.client.errors import InvalidBatch, InvalidJob, NotFound, SettingsError, ThinkqError

EXIT_OTHER: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

BAD_INPUT: Final = (InvalidBatch, InvalidJob, NotFound, SettingsError)

HELPS: Final = {
    "run": "Run a batch file: start what is missing, show progress, write results.",
    "submit": "Queue a batch file and print the batch's id.",
    "ask": "Ask one question and stream the answer.",
    "watch": "Follow a job or a batch, live.",
    "status": "Counts of all batches, or of one.",
    "results": "Write the results of a batch.",
    "report": "One HTML page about a batch.",
    "cancel": "Stop a job or a batch; what was written so far is kept.",
    "retry": "Run the jobs of a batch again that have no answer.",
    "rm": "Remove a batch and its results.",
    "ps": "The workers, and the jobs that run now.",
    "models": "The models on this machine, and which of them fit its memory.",
    "config": "The settings, and where each value comes from.",
    "daemon": "Keep Redis and a worker alive.",
    "worker": "A worker in the foreground, e.g. on a second Mac.",
    "doctor": "Check this installation; each finding comes with its remedy.",
    "completion": "Print the script that makes a shell complete commands and batch ids.",
}
MODULES: Final = {
    name: f"thinkq.client.cli.{name}"
    for name in (
        *("run", "submit", "ask", "watch", "status", "results", "report"),
        *("cancel", "retry", "rm", "ps", "config", "completion"),
    )
}

cli = LazyGroup(
    name="thinkq",
    modules=MODULES,
    helps=HELPS,
    help="""The queue that always brings an answer back: batch inference for reasoning models.

\b
Example:
  thinkq run jobs.jsonl
""",
)


def main(
    arguments: Sequence[str] | None = None, command: click.Command = cli, name: str = "thinkq"
) -> int:
    """Run a command line and return its exit code.

    0: all is well; 1: an error; 2: bad usage or input; 3: jobs without an answer; 130: interrupted.
    """
    _speak_utf8()
    try:
        code = command.main(arguments, prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", EXIT_INTERRUPTED)
    except BAD_INPUT as error:
        for line in error.errors if isinstance(error, InvalidBatch) else []:
            click.echo(str(line), err=True)
        return _fail(str(error), EXIT_USAGE)
    except BrokenPipeError:
        _let_go_of_stdout()  # Whoever read our output has gone.
        return EXIT_OTHER
    except (ThinkqError, redis.RedisError, OSError) as error:
        return _fail(str(error), EXIT_OTHER)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        return _fail(
            f"an error in thinkq itself, please report it: {type(error).__name__} at {where}",
            EXIT_OTHER,
        )
    return code if isinstance(code, int) else 0


def _speak_utf8() -> None:
    # Under launchd there is no locale, and Python would write ASCII.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")


def _fail(message: str, code: int) -> int:
    click.echo(f"thinkq: {message}", err=True)
    try:
        sys.stdout.flush()
    except OSError:
        _let_go_of_stdout()
    return code


def _let_go_of_stdout() -> None:
    # Python flushes what is left at its exit, and would fail once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
