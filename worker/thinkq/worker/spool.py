"""Finished results that Redis has not taken yet: one file each, on disk before any commit."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from thinkq.client.result import SCHEMA, Result

_log = logging.getLogger(__name__)


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """A result and the lease under which it was made. `queue` is RQ's name of the job's queue."""

    job_id: str
    queue: str
    execution_id: str
    result: Result
    schema: int = SCHEMA


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Spooled)


class Spool:
    """The directory of spooled results. It is made when the first one comes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.failing = False
        """Whether the disk did not take the last entry."""

    def put(self, entry: Spooled) -> None:
        """Write the entry and wait until the disk has it. Raises OSError, as on a full disk."""
        self.failing = True
        self._write(entry)
        self.failing = False

    def _write(self, entry: Spooled) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(
            self._path(entry.execution_id), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600
        )
        with open(descriptor, "wb") as file:
            file.write(_encoder.encode(entry))
            file.flush()
            os.fsync(descriptor)
        self._sync()

    def remove(self, execution_id: str) -> None:
        """Forget the entry; Redis has it, or nobody wants it any more.

        A file that the disk does not give up is harmless: the next start finds its result known.
        """
        try:
            self._path(execution_id).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("a spooled result cannot be removed (%s)", error.strerror)

    def entries(self) -> list[Spooled]:
        """All entries, oldest first.

        A torn file is removed: its writer died before the commit, so the job runs again.
        """
        paths = sorted(self._directory.glob("*.json"), key=lambda path: path.stat().st_mtime)
        return [entry for path in paths if (entry := _read(path)) is not None]

    def _path(self, execution_id: str) -> Path:
        return self._directory / f"{execution_id}.json"

    def _sync(self) -> None:
        # Without this a power cut can forget the new name of a file whose content is safe.
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read(path: Path) -> Spooled | None:
    try:
        entry = _decoder.decode(path.read_bytes())
    except msgspec.DecodeError:
        _log.warning("%s is torn; it is removed and its job runs again", path)
        path.unlink()
        return None
    if entry.schema > SCHEMA:
        _log.warning("%s was written by a newer thinkq and stays; update this one", path)
        return None
    return entry
