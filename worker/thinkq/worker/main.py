"""`thinkq worker`: a worker in the foreground."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from thinkq.client.errors import ThinkqError
from thinkq.client.settings import Settings, load_settings
from thinkq.worker.process import Process

if TYPE_CHECKING:
    from thinkq.worker.task import Engine, Load, Note

EPILOG = """\b
Examples:
  thinkq worker
  thinkq worker --redis redis://:secret@mac-mini.local:6379 --model mlx-community/Qwen3-8B-4bit
"""


@click.command(epilog=EPILOG)
@click.option("--redis", "redis_url", metavar="URL", help="The queue's Redis.")
@click.option("--model", metavar="NAME", help="A hub name, a path, or demo.")
@click.option("--max-batch", type=click.IntRange(1), metavar="N", help="Jobs decoded at once.")
@click.option("--until-eof", is_flag=True, help="End when standard input ends.")
@click.option("--burst", is_flag=True, help="End when no job is left.")
def worker(until_eof: bool, burst: bool, **options: Any) -> None:
    """Run jobs from the queue with one model, many at a time.

    Ctrl-C gives unfinished jobs back to the queue and ends; a second Ctrl-C ends at once.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("rq.worker").setLevel(logging.WARNING)
    try:
        given = {name: value for name, value in options.items() if value is not None}
        settings = load_settings(**given)
        code = Process(settings, _loader(settings), burst=burst, until_eof=until_eof).run()
    except ThinkqError as error:
        raise click.ClickException(str(error)) from None
    raise SystemExit(code)


def _loader(settings: Settings) -> Load:
    def load(model: str, note: Note) -> Engine:
        # Here, because importing MLX takes a second that `--help` should not.
        from thinkq.worker.engine import Engine as MlxEngine

        return MlxEngine.load(model, max_batch=settings.max_batch, settings=settings, note=note)

    return load
