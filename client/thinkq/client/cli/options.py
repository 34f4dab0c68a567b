"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from thinkq.client.cli.completion import BatchId
from thinkq.client.job_checks import EFFORTS
from thinkq.client.rows import FORMATS

Function = TypeVar("Function", bound=Callable[..., Any])

EXIT_INTERRUPTED: Final = 130

BATCH: Final = BatchId()
"""The type of an argument that is a batch's id; shells complete it."""

_JOB_OPTIONS = (
    click.option("--model", metavar="NAME", help="Model: `demo`, a hub name, or a path."),
    click.option("--effort", type=click.Choice(EFFORTS), help="How hard to think."),
    click.option(
        "--budget", type=click.IntRange(min=-1), metavar="N", help="Thinking budget, in tokens."
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        metavar="N",
        help="Most tokens, thinking included.",
    ),
)


def job_options(function: Function) -> Function:
    """`--model --effort --budget --max-tokens`, for what jobs do not state themselves."""
    for option in reversed(_JOB_OPTIONS):
        function = option(function)
    return function


def job_defaults(
    model: str | None, effort: str | None, budget: int | None, max_tokens: int | None
) -> dict[str, Any]:
    """The options as fields of a job; those not given are left out."""
    fields = {
        "model": model,
        "reasoning_effort": effort,
        "thinking_token_budget": budget,
        "max_tokens": max_tokens,
    }
    return {name: value for name, value in fields.items() if value is not None}


format_option = click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="thinkq",
    show_default=True,
    help="Form of the rows.",
)


@contextmanager
def interruptible(how_to_go_on: str) -> Iterator[None]:
    """Ctrl-C ends the command with exit code 130 and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"\ninterrupted: {how_to_go_on}", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
