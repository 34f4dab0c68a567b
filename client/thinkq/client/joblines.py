"""Jobs and the lines that they come from: what can be submitted, and what is remembered of it."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from thinkq.client.job import Job, job_hash

HASH_BYTES: Final = 8
"""What `job_hash` says in twice as many hex digits."""


class JobLines(Protocol):
    """Jobs by line (from 1), in the order of the lines: a dict, or a file that is read again."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]:
        """The lines."""

    def items(self) -> Iterable[tuple[int, Job]]:
        """Each line with its job. May be asked for more than once."""


def id_of_hashes(hashes: Iterable[tuple[int, str]], salt: str = "") -> str:
    """`queue.batch_id` from each line with its job's hash, in the order of the lines."""
    digest = hashlib.sha256(salt.encode())
    for line, hash_of_job in hashes:
        digest.update(f"{line} {hash_of_job}\n".encode())
    return f"b{digest.hexdigest()[:12]}"


class JobIndex:
    """The line, `custom_id` and hash of each job: some 150 bytes, however long the job is."""

    def __init__(self) -> None:
        self._lines = array("Q")
        self._hashes = bytearray()
        self._line_of: dict[str, int] = {}

    @classmethod
    def of(cls, jobs: JobLines) -> JobIndex:
        """The index of jobs that each have a `custom_id` of their own."""
        index = cls()
        for line, job in jobs.items():
            index.add(line, job.custom_id or "", job_hash(job))
        return index

    def add(self, line: int, custom_id: str, hash_of_job: str) -> None:
        """Remember a job. Lines come in their order; `custom_id` is new."""
        self._lines.append(line)
        self._hashes += bytes.fromhex(hash_of_job)
        self._line_of[custom_id] = line

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[int]:
        """The lines, in their order."""
        return iter(self._lines)

    def __contains__(self, line: object) -> bool:
        return isinstance(line, int) and self.hash_of(line) is not None

    def line_of(self, custom_id: str | None) -> int | None:
        """The line of the job with this `custom_id`, if there is one."""
        return None if custom_id is None else self._line_of.get(custom_id)

    def hash_of(self, line: int) -> str | None:
        """The hash of the job on a line, if there is one."""
        at = bisect_left(self._lines, line)
        return self._hash(at) if at < len(self) and self._lines[at] == line else None

    def hashes(self) -> Iterator[tuple[int, str]]:
        """Each line with its job's hash, in the order of the lines."""
        return ((line, self._hash(at)) for at, line in enumerate(self._lines))

    def _hash(self, at: int) -> str:
        return self._hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES].hex()
