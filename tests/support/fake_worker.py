"""A real worker process around the fake engine, which can die at a named point.

    python -m support.fake_worker [--step SECONDS] [--die-after Class.method]

Settings come from the environment, as with the real one.
"""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

import click

from support.fake_engine import FakeEngine
from thinkq.client.commit import Committer
from thinkq.client.errors import ThinkqError
from thinkq.client.settings import load_settings
from thinkq.worker.books import Books
from thinkq.worker.process import Process
from thinkq.worker.spool import Spool

DEATHS = {
    "Books.pop": (Books, "pop"),
    "Books.start": (Books, "start"),
    "Spool.put": (Spool, "put"),
    "Committer.commit": (Committer, "commit"),
    "Books.close": (Books, "close"),
    "Spool.remove": (Spool, "remove"),
}
"""The steps of a job's way, in their order."""


def die_after(point: str) -> None:
    """Make the process kill itself when that step was done for the first time."""
    owner, name = DEATHS[point]
    step = getattr(owner, name)

    def dying(*args: Any, **kwargs: Any) -> Any:
        done = step(*args, **kwargs)
        if done is not None or point in ("Spool.put", "Books.close", "Spool.remove"):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(owner, name, dying)


@click.command()
@click.option("--step", default=0.0)
@click.option("--die-after", "point", type=click.Choice(list(DEATHS)))
def main(step: float, point: str | None) -> None:
    """Run the worker until it is told to stop."""
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("rq.worker").setLevel(logging.WARNING)
    if point:
        die_after(point)
    settings = load_settings()
    process = Process(settings, lambda: FakeEngine(settings.max_batch, step), until_eof=True)
    try:
        raise SystemExit(process.run())
    except ThinkqError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
