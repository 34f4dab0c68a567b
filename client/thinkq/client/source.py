"""Bytes that can be read from their beginning again and again."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, cast

GZIP_START: Final = b"\x1f\x8b"


class Source:
    """A file that can be read again and again; a pipe is kept in a temporary file for that.

    Raises OSError if there is no such file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._kept: BinaryIO | None = None
        if path == "-":
            self._keep(sys.stdin.buffer)
        elif not os.path.isfile(path):
            with open(path, "rb") as pipe:
                self._keep(pipe)

    def _keep(self, stream: BinaryIO) -> None:
        self._kept = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  # see the next line
        weakref.finalize(self, self._kept.close)
        shutil.copyfileobj(stream, self._kept)
        self._kept.flush()

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """The bytes from their beginning, unpacked if they are packed."""
        with io.BufferedReader(cast(io.RawIOBase, self._raw())) as file:
            if file.peek(2)[:2] == GZIP_START:
                with gzip.open(file) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield cast(BinaryIO, file)

    def _raw(self) -> BinaryIO:
        if self._kept is None:
            return cast(BinaryIO, open(self.path, "rb", buffering=0))
        again = os.fdopen(os.dup(self._kept.fileno()), "rb", buffering=0)
        again.seek(0)
        return cast(BinaryIO, again)
