"""Files that are written whole or not at all, by one process at a time."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final

from thinkq.client.errors import ThinkqError

NEW_FILE_MODE: Final = 0o666
"""Less what the umask takes away."""
PRIVATE_MODE: Final = 0o600


def open_locked(path: Path) -> BinaryIO:
    """The file, made if need be, to be read, and appended to with `append`.

    It is locked against a second writer until it is closed. Raises ThinkqError where there is one,
    and for what is no plain file or cannot be written.
    """
    if path.exists() and not path.is_file():
        raise ThinkqError(f"{path} is not a plain file; use `-o -` and redirect the output")
    try:
        return _locked(path, os.O_APPEND, NEW_FILE_MODE)
    except OSError as error:
        raise ThinkqError(
            f"cannot write {path}: {error.strerror}; choose another file with -o"
        ) from None


def _locked(path: Path, flags: int, mode: int) -> BinaryIO:
    flags |= os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, mode), "rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ThinkqError(
            f"{path} is being written by another thinkq; wait, or choose -o"
        ) from None
    return file


def append(file: BinaryIO, data: bytes) -> None:
    """Write at the end of the file, all of the data or, raising OSError, nothing of it."""
    # Past Python's buffer: a later flush would write once more what had no room.
    size = os.fstat(file.fileno()).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(file.fileno(), rest) :]
    except OSError:
        os.ftruncate(file.fileno(), size)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file, to be filled with `append`, that takes the place of `path` at the end.

    It is on the disk by then, and never more open to others than the file that it replaces. Left
    with an error, there is no new file and the old one stays. Else it is open and locked
    afterwards, as by `open_locked`.
    """
    temporary = path.with_name(f".{path.name}.thinkq")
    former = path.stat() if path.exists() else None
    mode = NEW_FILE_MODE if former is None else PRIVATE_MODE
    # What another user has put there is not followed.
    file = _locked(temporary, os.O_APPEND | os.O_NOFOLLOW, mode)
    try:
        os.ftruncate(file.fileno(), 0)
        if former is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(former.st_mode))
        yield file
        os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        file.close()
        raise


@contextmanager
def written_anew(path: Path) -> Iterator[BinaryIO]:
    """As `replacing`, for those who have not locked `path` yet; afterwards the file is closed.

    Raises ThinkqError where it cannot be written.
    """
    try:
        with open_locked(path) if path.exists() else nullcontext(), replacing(path) as file:
            yield file
        file.close()
    except OSError as error:
        raise ThinkqError(
            f"cannot write {path}: {error.strerror}; what was there before is as it was"
        ) from None
