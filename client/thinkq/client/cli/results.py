"""`thinkq results`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from thinkq.client import files
from thinkq.client.cli.options import BATCH, format_option
from thinkq.client.client import Client
from thinkq.client.output import telling_of_stdout
from thinkq.client.rows import Format, encode_row, stored_rows
from thinkq.client.settings import load_settings


@click.command()
@click.argument("batch", type=BATCH)
@click.option("-o", "output", metavar="OUT", help="A file; default: stdout.")
@format_option
def results(batch: str, output: str | None, form: Format) -> None:
    """Write the results of a batch that are there, in input order.

    \b
    Example:
      thinkq results b5d41402abc4 --format openai -o answers.jsonl
    """
    with Client(settings=load_settings()) as client:
        ids = client.batch(batch).job_ids
        with _opened(output) as write, client.reaching():
            written = 0
            for row in stored_rows(client.connection, ids):
                write(encode_row(row, form))
                written += 1
    if written < len(ids):
        click.echo(f"{len(ids) - written} of {len(ids)} jobs have not ended yet", err=True)


@contextmanager
def _opened(output: str | None) -> Iterator[Callable[[bytes], object]]:
    """What writes a row."""
    if output in (None, "-"):
        with telling_of_stdout():
            yield sys.stdout.buffer.write
            sys.stdout.buffer.flush()
    elif os.path.exists(output) and not os.path.isfile(output):  # a pipe, or /dev/null
        with open(output, "wb") as file:
            yield file.write
    else:
        with files.written_anew(Path(os.path.realpath(output))) as file:
            yield partial(files.append, file)
