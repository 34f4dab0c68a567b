"""`thinkq run`."""

from __future__ import annotations

import sys
from typing import Any

import click

from thinkq.client.cli.options import format_option, job_defaults, job_options
from thinkq.client.rows import Format
from thinkq.client.run import RunOptions
from thinkq.client.run import run as run_batch
from thinkq.client.settings import load_settings

EXIT_INTERRUPTED = 130


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("-o", "output", metavar="OUT", help="Result file; default: FILE.results.jsonl.")
@job_options
@format_option
@click.option(
    "--skip-invalid", is_flag=True, help="Run the good lines, give bad ones an error row."
)
@click.option("--retry-failed", is_flag=True, help="Run jobs again that have no answer.")
@click.option("--again", is_flag=True, help="Run all jobs again, although they have run.")
@click.option("--unordered", is_flag=True, help="Leave the rows in the order in which jobs ended.")
def run(
    file: str,
    output: str | None,
    form: Format,
    skip_invalid: bool,
    retry_failed: bool,
    again: bool,
    unordered: bool,
    **job: Any,
) -> int:
    """Run all jobs of a batch file and write their results.

    The whole file is checked first. What is not running (Redis, a worker) is started, and stopped
    at the end. The same command again goes on where the last one stopped.

    Options of jobs are for jobs that do not state them; --model also replaces the model that lines
    for OpenAI's batch API name.

    \b
    Example:
      thinkq run jobs.jsonl --effort medium --budget 2048
    """
    options = RunOptions(
        source=file,
        output=output or ("-" if file == "-" else f"{file}.results.jsonl"),
        form=form,
        defaults=job_defaults(**job),
        skip_invalid=skip_invalid,
        retry_failed=retry_failed,
        again=again,
        unordered=unordered,
    )
    try:
        return run_batch(options, load_settings(), sys.stdout.buffer, sys.stderr)
    except KeyboardInterrupt:
        click.echo(
            "interrupted: the jobs stay queued; the same command goes on with them", err=True
        )
        return EXIT_INTERRUPTED
