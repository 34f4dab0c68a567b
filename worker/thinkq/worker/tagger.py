"""Token ids to tagged text, by position and nothing else.

Each side of a row has an incremental decoder of its own. Bytes of an unfinished character wait
for the next token; at the end of a side they become one U+FFFD. Ids that may turn out to be a
marker wait too.

The answer then passes three stations: tool calls are taken out, leading newlines dropped, and
what a stop string ends is cut off. What leaves the last one is shown and stored: the stream is
the store, to the byte.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

from thinkq.client.job import Job
from thinkq.worker.cutter import Cutter
from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.tokens import TokenBytes
from thinkq.worker.tools import ToolCalls, ToolSyntax, offered

Sink = Callable[[str, bool], None]
"""Called with each piece of text, and whether it is reasoning. It must only take note of it."""

new_decoder = codecs.getincrementaldecoder("utf-8")


class Tagger:
    """Text of one row, told apart by the tracker.

    Args:
        table: The tokenizer's bytes.
        tracker: The row's tracker; each token is observed there first, then pushed here.
        job: Its stop strings, its tools, and whether its thinking is kept and sent.
        syntax: How the model writes tool calls; None: it writes none.
        sink: Where pieces go as they come; None: they are only kept.
    """

    def __init__(
        self,
        table: TokenBytes,
        tracker: ReasoningTracker,
        job: Job,
        syntax: ToolSyntax | None = None,
        sink: Sink | None = None,
    ) -> None:
        self._table, self._tracker = table, tracker
        self._sink, self._include_reasoning = sink, job.include_reasoning is not False
        self._stops = Cutter(job.stop_strings)
        self._drafts = Cutter([syntax.start] if syntax else [])
        tools = offered(job)
        self._calls = ToolCalls(syntax, tools) if syntax and tools else None
        self._unparsed_tools = bool(tools) and syntax is None
        self._decoders = (new_decoder("replace"), new_decoder("replace"))
        self._pieces: tuple[list[str], list[str]] = ([], [])
        self._untouched = [True, True]
        self._begun = [False, False]
        self._blank = ""
        self._answer_has_text = False
        self._waiting: list[int] = []
        self._side = tracker.in_thinking

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the answer."""
        return self._stops.found

    @property
    def answer_is_blank(self) -> bool:
        """Whether the model has written nothing but white space for an answer. A call is more."""
        return not self._answer_has_text

    @property
    def thinking(self) -> str | None:
        """All thinking so far, verbatim; None if it is white space only or not included."""
        return "".join(self._pieces[True]) or None

    @property
    def answer(self) -> str:
        """All of the answer so far, without its leading newlines and without its tool calls."""
        return "".join(self._pieces[False])

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The calls in the answer so far, in OpenAI's form."""
        return self._calls.calls if self._calls else []

    @property
    def warnings(self) -> list[str]:
        """What was odd about the text so far."""
        odd = {
            "tools_unsupported": self._unparsed_tools,
            "tool_call_in_thinking": self._drafts.found,
            "malformed_tool_call": self._calls is not None and self._calls.malformed,
        }
        return [name for name, is_so in odd.items() if is_so]

    def push(self, token: int) -> None:
        """Take in the token that the tracker has just observed."""
        tracker = self._tracker
        if tracker.is_stray:
            self._decode(len(self._waiting))
        elif tracker.kind == "control":
            self._waiting.clear()
        else:
            self._waiting.append(token)
            ready = len(self._waiting) - tracker.pending
            if ready > 0:
                self._decode(ready)
        if tracker.in_thinking != self._side:
            self._end_side()
            self._side = tracker.in_thinking

    def finish(self) -> None:
        """Let go of all that was held back: the row has ended."""
        self._decode(len(self._waiting))
        self._end_side()
        self._finish_answer()

    def _decode(self, tokens: int) -> None:
        data = b"".join(map(self._table.__getitem__, self._waiting[:tokens]))
        del self._waiting[:tokens]
        self._write(self._decoders[self._side].decode(data), self._side)

    def _end_side(self) -> None:
        self._write(self._decoders[self._side].decode(b"", True), self._side)

    def _write(self, text: str, reasoning: bool) -> None:
        """Take in text of one side, in the order it was written."""
        if not text:
            return
        if self._untouched[reasoning]:
            self._untouched[reasoning] = False
            text = text.removeprefix(self._table.dummy_prefix)
        if reasoning:
            self._write_thinking(text)
        else:
            self._answer_has_text = self._answer_has_text or not text.isspace()
            self._write_answer(self._calls.push(text) if self._calls else text)

    def _write_thinking(self, text: str) -> None:
        """Hold thinking back while it is white space only."""
        self._drafts.push(text)
        if not self._begun[True]:
            text = self._blank + text
            self._begun[True] = not text.isspace()
            self._blank = "" if self._begun[True] else text
        if self._begun[True] and self._include_reasoning:
            self._emit(text, True)

    def _write_answer(self, text: str) -> None:
        if not self._begun[False]:
            text = text.lstrip("\n")
            self._begun[False] = bool(text)
        self._emit(self._stops.push(text)[0], False)

    def _finish_answer(self) -> None:
        if self._calls:
            self._write_answer(self._calls.finish())
        self._emit(self._stops.flush(), False)

    def _emit(self, text: str, reasoning: bool) -> None:
        if not text:
            return
        self._pieces[reasoning].append(text)
        if self._sink is not None:
            self._sink(text, reasoning)
