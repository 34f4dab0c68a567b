"""`thinkq ask`."""

from __future__ import annotations

import os
from typing import Any

import click

from thinkq.client import launch
from thinkq.client.cli.options import job_defaults, job_options
from thinkq.client.cli.watch import watch_job
from thinkq.client.client import Client
from thinkq.client.settings import load_settings


@click.command()
@click.argument("text")
@job_options
def ask(text: str, **options: Any) -> int:
    """Ask one question: the thinking goes to stderr, the answer to stdout.

    It is answered before all batches. What is not running is started, and stopped at the end.

    \b
    Example:
      thinkq ask "What is 17 * 23?" --budget 500
    """
    settings = load_settings()
    # Without a locale Python hands UTF-8 arguments on as surrogates.
    text = os.fsencode(text).decode(errors="replace") if _escaped(text) else text
    fields = job_defaults(**options)
    job = {"messages": [{"role": "user", "content": text}], "priority": "high"} | fields
    with (
        launch.running(settings, fields.get("model")) as check,
        Client(settings=settings) as client,
    ):
        batch = client.submit([job], name="ask", again=True, durable=False)
        return watch_job(client, batch.job_ids[0], check)


def _escaped(text: str) -> bool:
    return any("\udc80" <= character <= "\udcff" for character in text)
