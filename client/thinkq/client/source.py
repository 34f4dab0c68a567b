"""A batch file as bytes: a file, a pipe or standard input, plain or gzip, read more than once."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, cast

from thinkq.client.errors import FileChanged, InvalidBatch

BOM: Final = b"\xef\xbb\xbf"
GZIP_START: Final = b"\x1f\x8b"
SKIP_BYTES: Final = 1 << 20

Identity = tuple[int, int, int, int]
"""Device, inode, size and time of the last change: another file has another."""


class Source:
    """The file at a path, or standard input (`-`).

    What can be read only once is copied, when it is read first, into a temporary file without a
    name. Raises InvalidBatch, from `opened`, for what cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._copy: BinaryIO | None = None
        self._identity: Identity | None = None

    def close(self) -> None:
        """Drop the copy, if there is one."""
        if self._copy is not None:
            self._copy.close()

    @property
    def name(self) -> str:
        """What the file is called in messages and in lists."""
        return "standard input" if self.path == "-" else os.path.basename(self.path)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """The file from its beginning, unpacked.

        Raises FileChanged if it is another file than the first time.
        """
        try:
            with self._from_the_start() as file:
                packed = file.read(len(GZIP_START)) == GZIP_START
                file.seek(0)
                yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidBatch(f"cannot read {self.path}: {reason}", []) from None

    @contextmanager
    def _from_the_start(self) -> Iterator[BinaryIO]:
        if self._copy is None and self.path == "-":
            if sys.stdin is None:  # as with `<&-`, and under some services
                raise InvalidBatch("standard input is closed; name a file, or pipe the jobs in", [])
            self._copy = _copied(sys.stdin.buffer, self.name)
        if self._copy is None:
            with open(self.path, "rb") as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    self._check(os.fstat(file.fileno()))
                    yield file
                    return
                self._copy = _copied(file, self.name)
        self._copy.seek(0)
        yield self._copy

    def _check(self, now: os.stat_result) -> None:
        identity = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
        self._identity = self._identity or identity
        if identity != self._identity:
            raise FileChanged(f"{self.name} was changed after it had been checked")


def _copied(file: BinaryIO, name: str) -> BinaryIO:
    copy = cast(BinaryIO, tempfile.TemporaryFile(prefix="thinkq-"))  # noqa: SIM115  # `close` does
    try:
        shutil.copyfileobj(file, copy)
        copy.flush()
    except OSError as error:
        copy.close()
        raise InvalidBatch(
            f"cannot copy {name} to {tempfile.gettempdir()}: {error.strerror}; "
            "make room, or set TMPDIR to a folder that has some",
            [],
        ) from None
    return copy


def physical_lines(file: BinaryIO, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Number and bytes of each line without its line end; None in place of more than `limit` bytes.

    A line that is too long is skipped while reading, never held. A byte order mark at the start of
    the file is left out.
    """
    number = 0
    while raw := file.readline(limit + len(BOM) + len(b"\r\n")):
        number += 1
        ended = raw.endswith(b"\n")
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(BOM)
        yield number, line if len(line) <= limit else None
        while not ended and (raw := file.readline(SKIP_BYTES)):
            ended = raw.endswith(b"\n")
