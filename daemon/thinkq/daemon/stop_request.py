"""How the daemon learns that it should stop: a signal, or the end of its stdin."""

from __future__ import annotations

import os
import select
import signal
from types import TracebackType
from typing import Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Waits without a thread: signal handlers set a flag, and a pipe wakes the wait at once."""

    def __init__(self, *, until_eof: bool) -> None:
        """`until_eof`: the end of stdin is a request to stop, too."""
        self._stdin = [0] if until_eof else []
        self._stop = False

    def __enter__(self) -> Self:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._former_wakeup = signal.set_wakeup_fd(self._write_end)
        self._former = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_wakeup)
        os.close(self._read_end)
        os.close(self._write_end)

    def wait(self, seconds: float) -> bool:
        """Whether the daemon should stop; waits at most `seconds` for that."""
        if self._stop:
            return True
        readable, _, _ = select.select([self._read_end, *self._stdin], [], [], seconds)
        if self._read_end in readable:
            os.read(self._read_end, 512)
        if 0 in readable and not os.read(0, 4096):
            self._stop = True
        return self._stop

    def _note(self, number: int, frame: object) -> None:
        self._stop = True
