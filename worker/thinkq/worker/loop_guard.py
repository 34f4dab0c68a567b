"""LoopGuard: convicts a thought that repeats itself, token by token, for good.

A loop is an exact cycle: the last tokens have a period p of 1 to 256 and cover at least 64 tokens
and at least four copies of it. Nothing less is one, so a text without such a cycle is never
convicted.

How it works. Let the run of p be how many of the last tokens equal the one p before them. A cycle
of period p covers run + p tokens, so it is convicted when its run reaches max(64 - p, 3 p), which
is 48 at the least. Hence only distances whose run has reached 48 matter, and those are found all at
once: they are the distances to earlier places with the same last 48 tokens. A rolling hash finds
such places; from then on each distance is followed token by token. Ordinary text has no such place,
so that a token costs one dictionary look-up.
"""

from __future__ import annotations

from collections import deque

MAX_PERIOD = 256
MIN_COVERED = 64
MIN_COPIES = 4

_WINDOW = min(max(MIN_COVERED - p, (MIN_COPIES - 1) * p) for p in range(1, MAX_PERIOD + 1))
_PRIME = (1 << 61) - 1
_BASE = 1_000_003
_OLDEST = pow(_BASE, _WINDOW, _PRIME)


class LoopGuard:
    """Watches one thought. `period` is set when it is convicted."""

    def __init__(self) -> None:
        self.period: int | None = None
        self._tokens: list[int] = []
        self._hash = 0
        self._places: dict[int, list[int]] = {}
        self._recent: deque[int] = deque()
        self._runs: dict[int, int] = {}

    def push(self, token: int) -> bool:
        """Take in a token; whether the thought is, by now, a loop."""
        tokens = self._tokens
        tokens.append(token)
        if self._runs:
            here = len(tokens) - 1
            self._runs = {p: run + 1 for p, run in self._runs.items() if tokens[here - p] == token}
        self._hash = (self._hash * _BASE + token + 1) % _PRIME
        if len(tokens) > _WINDOW:
            self._hash = (self._hash - (tokens[-_WINDOW - 1] + 1) * _OLDEST) % _PRIME
        if len(tokens) >= _WINDOW:
            self._find_places()
        if self._runs:
            self._judge()
        return self.period is not None

    def _find_places(self) -> None:
        """Follow every distance at which the last tokens have just become a repetition."""
        here = len(self._tokens)
        places = self._places.setdefault(self._hash, [])
        window = self._tokens[-_WINDOW:] if places else []
        for place in places:
            if here - place not in self._runs and self._tokens[place - _WINDOW : place] == window:
                self._runs[here - place] = _WINDOW
        places.append(here)
        self._recent.append(self._hash)
        if len(self._recent) > MAX_PERIOD:
            self._forget(self._recent.popleft())

    def _forget(self, oldest: int) -> None:
        places = self._places[oldest]
        del places[0]
        if not places:
            del self._places[oldest]

    def _judge(self) -> None:
        for p in sorted(self._runs):
            covered = self._runs[p] + p
            if covered >= MIN_COVERED and covered >= MIN_COPIES * p:
                self.period = p
                return
