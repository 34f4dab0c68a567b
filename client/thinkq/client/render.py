"""Text for people: a job's stream on a terminal, and the closing summary of a batch."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TextIO

from thinkq.client.events import Event
from thinkq.client.result import Result, decode_result

CONTROLS: Final = {
    code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\t\n"
}
"""Characters that a terminal would obey, or that nobody would see."""

DIM: Final = "\x1b[2m"
RESET: Final = "\x1b[0m"


def clean(text: str) -> str:
    """The text with a replacement character for each control character."""
    return text.translate(CONTROLS)


def one_line(text: str) -> str:
    """The text without line breaks and control characters."""
    return clean(text.replace("\n", " ").replace("\t", " "))


def shows_color(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to style text: on a terminal, unless NO_COLOR has a value."""
    return stream.isatty() and not environ.get("NO_COLOR")


class JobView:
    """Thinking on `err`, dim on a terminal; the answer on `out`, bare.

    An answer that goes anywhere else than to a terminal is written when it is whole, because what a
    restarted attempt has written cannot be taken back from a pipe.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err
        self._live = out.isatty()
        self._dim = shows_color(err)
        self._answer: list[str] = []
        self._thinking = False

    def show(self, events: Iterable[Event]) -> Result | None:
        """Write the events as they come; the result, without its long texts, once there is one."""
        for event in events:
            match event.type:
                case "delta" if event.is_reasoning:
                    self._think(event.text)
                case "delta":
                    self._say(event.text)
                case "restart":
                    self._restart()
                case "done":
                    self._finish()
                    return decode_result(event.result)
        return None

    def _think(self, text: str) -> None:
        self._thinking = True
        text = clean(text) if self._err.isatty() else text
        self._write(self._err, f"{DIM}{text}{RESET}" if self._dim else text)

    def _say(self, text: str) -> None:
        self._end_thinking()
        self._answer.append(text)
        if self._live:
            self._write(self._out, clean(text))

    def _restart(self) -> None:
        self._end_thinking()
        if self._live and self._answer:
            self._write(self._out, "\n")
        self._answer.clear()
        self._write(self._err, "[the job begins anew]\n")

    def _finish(self) -> None:
        self._end_thinking()
        if not self._live:
            self._write(self._out, "".join(self._answer))
        if self._answer:
            self._write(self._out, "\n")

    def _end_thinking(self) -> None:
        if self._thinking:
            self._write(self._err, "\n\n")
        self._thinking = False

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        stream.write(text)
        stream.flush()


CLOSES: Final = ("natural", "budget", "loop", "eos", "deadline", "tool", "length")
"""Close reasons in the order in which they are told."""

SHORTEST_S: Final = 0.05
"""A batch that took less was not decoded now."""


def summary(tally: Counter[str], *, new_tokens: int, seconds: float) -> list[str]:
    """The closing lines of a batch.

    `tally` sums `batches.counts` over all results; `new_tokens` were decoded in `seconds`.
    """
    closes = [
        f"{tally[f'close:{reason}']} {reason}"
        for reason in CLOSES
        if tally[f"close:{reason}"] or reason in ("natural", "budget", "loop")
    ]
    tokens = f"{tally['thinking_tokens']:,} thinking and {tally['answer_tokens']:,} answer tokens"
    if new_tokens and seconds >= SHORTEST_S:  # of what was there already there is no rate to tell
        tokens += f"; {new_tokens / seconds:,.1f} tokens/s; {duration(seconds)}"
    return [
        f"{tally['done']} done, {tally['failed']} failed, {tally['empty']} empty, "
        f"{tally['cancelled']} cancelled, {tally['length']} cut by max_tokens",
        f"thinking closed: {', '.join(closes)}",
        tokens,
    ]


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
