"""A child process that cannot outlive the daemon."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from thinkq.client.launch import private
from thinkq.daemon.logs import last_lines


class Child:
    """One command, run by one process at a time.

    The process's stdin is a pipe whose other end only the daemon holds: it reads the end of the
    file at any death of the daemon, kill -9 included. It has a session of its own, so that Ctrl-C
    in a terminal reaches only the daemon, which stops its children in their order.
    """

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._environ = environ or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> bool:
        """Start the process. False if it cannot start yet and should be tried again soon."""
        self._spawn()
        return True

    def _spawn(self, keep_open: Sequence[int] = ()) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.log, "ab", opener=private) as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self._environ,
                start_new_session=True,
                umask=0o077,
                pass_fds=keep_open,
            )

    @property
    def pid(self) -> int | None:
        """The process id, or None when nothing was started."""
        return self._process.pid if self._process else None

    def alive(self) -> bool:
        """Whether the process runs."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._close_lifeline()
        return False

    def ready(self) -> bool:
        """Whether the process does its work."""
        return self.alive()

    def ending(self) -> str:
        """How the process ended, in words."""
        code = self._process.poll() if self._process else None
        if code is None:
            return "has not ended"
        return f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"

    def last_words(self) -> str:
        """The last lines of the log that this process wrote, not the one before it."""
        return last_lines(self.log, 5, since=self._log_start)

    def ask_to_stop(self) -> None:
        """Ask the process to end soon."""
        if self._process is not None:
            self._process.terminate()

    def stop(self, timeout: float) -> None:
        """Ask the process to end, and kill it with its whole session after `timeout` seconds."""
        if self._process is None:
            return
        self.ask_to_stop()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_lifeline()

    def kill(self) -> None:
        """End the process and its whole session now."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._close_lifeline()

    def _close_lifeline(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
