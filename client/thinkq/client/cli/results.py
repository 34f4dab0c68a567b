"""`thinkq results`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from thinkq.client.cli.options import BATCH, format_option
from thinkq.client.client import Client
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
        if output in (None, "-"):
            written = _write(client, ids, form, sys.stdout.buffer)
        else:
            with _replacing(Path(output)) as file:
                written = _write(client, ids, form, file)
    if written < len(ids):
        click.echo(f"{len(ids) - written} of {len(ids)} jobs have not ended yet", err=True)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of the one at the path once it is whole, with the same mode."""
    if path.exists() and not path.is_file():  # a pipe, or /dev/null
        with path.open("wb") as file:
            yield file
        return
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write(client: Client, ids: list[str], form: Format, file: BinaryIO) -> int:
    written = 0
    with client.reaching():
        for row in stored_rows(client.connection, ids):
            file.write(encode_row(row, form))
            written += 1
    file.flush()
    return written
