"""A real worker process around the fake engine, which can die at a named point.

    python -m support.fake_worker [--step SECONDS] [--die-after POINT | --die-during POINT]

Settings come from the environment, as with the real one.
"""

from __future__ import annotations

import logging

import click

from support.crash_points import CRASH_POINTS, die_after, die_during
from support.fake_engine import FakeEngine
from thinkq.client.errors import ThinkqError
from thinkq.client.settings import load_settings
from thinkq.worker.process import Process

_point = click.Choice(list(CRASH_POINTS))


@click.command()
@click.option("--step", default=0.0)
@click.option("--die-after", "after", type=_point)
@click.option("--die-during", "during", type=_point)
@click.option("--nth", default=1)
def main(step: float, after: str | None, during: str | None, nth: int) -> None:
    """Run the worker until it is told to stop."""
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("rq.worker").setLevel(logging.WARNING)
    if after:
        die_after(after, nth)
    if during:
        die_during(during, nth)
    settings = load_settings()
    process = Process(settings, lambda *_: FakeEngine(settings.max_batch, step), until_eof=True)
    try:
        raise SystemExit(process.run())
    except ThinkqError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
