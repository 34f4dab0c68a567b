"""`thinkq ask`."""

from __future__ import annotations

import os
import select
import stat
import sys
from typing import Any, Final

import click

from thinkq.client import batches, launch
from thinkq.client.cli.options import EXIT_INTERRUPTED, job_defaults, job_options
from thinkq.client.cli.watch import watch_job
from thinkq.client.client import Client
from thinkq.client.result import encode_result
from thinkq.client.run import EXIT_ANSWERED, EXIT_UNANSWERED
from thinkq.client.settings import load_settings

FIRST_BYTE_S: Final = 3.0
"""Text that is piped in has to begin within this time."""


@click.command()
@click.argument("text")
@job_options
@click.option("--no-thinking", is_flag=True, help="Answer at once, where the model can.")
@click.option("--system", metavar="TEXT", help="A system message.")
@click.option("--json", "as_json", is_flag=True, help="The whole result as one line of JSON.")
def ask(text: str, system: str | None, no_thinking: bool, as_json: bool, **options: Any) -> int:
    """Ask one question: the thinking goes to stderr, the answer to stdout.

    It is answered before all batches. What is not running is started, and stopped at the end. Text
    that is piped or redirected into the command is put before the question. Ctrl-C cancels the job.

    \b
    Example:
      thinkq ask "What is 17 * 23?" --budget 500
      git diff | thinkq ask "Write a commit message for this." --no-thinking
    """
    settings = load_settings()
    fields = job_defaults(**options)
    if no_thinking:
        fields["enable_thinking"] = False
    job = {"messages": _messages(_decoded(text), system), "priority": "high"} | fields
    with (
        launch.running(settings, fields.get("model")) as check,
        Client(settings=settings) as client,
    ):
        batch = client.submit([job], name="ask", again=True, durable=False)
        (job_id,) = batch.job_ids
        try:
            return (_wait if as_json else watch_job)(client, job_id, check)
        except KeyboardInterrupt:
            client.cancel(job_id)
            click.echo("interrupted: the job is cancelled", err=True)
            return EXIT_INTERRUPTED


def _messages(question: str, system: str | None) -> list[dict[str, str]]:
    """Raises UsageError if nothing is asked."""
    content = "\n\n".join(part for part in (_piped(), question) if part.strip())
    if not content:
        raise click.UsageError("the question is empty; write it in quotes")
    messages = [{"role": "user", "content": content}]
    return [{"role": "system", "content": _decoded(system)}, *messages] if system else messages


def _piped() -> str:
    """What was piped or redirected into the command. A terminal or /dev/null is not read."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return ""
    if not select.select([sys.stdin], [], [], FIRST_BYTE_S)[0]:
        # Whoever started us may have left a pipe open that nobody will ever write to.
        click.echo("nothing comes on standard input; the question goes without it", err=True)
        return ""
    return sys.stdin.buffer.read().decode(errors="replace").rstrip("\n")


def _wait(client: Client, job_id: str, check: launch.Check) -> int:
    for _ in client.follow(job_id, idle=check):
        pass
    result = client.result(job_id)
    click.echo(encode_result(result))
    return EXIT_UNANSWERED if batches.unanswered(result) else EXIT_ANSWERED


def _decoded(text: str) -> str:
    # Without a locale Python hands UTF-8 arguments on as surrogates.
    escaped = any("\udc80" <= character <= "\udcff" for character in text)
    return os.fsencode(text).decode(errors="replace") if escaped else text
