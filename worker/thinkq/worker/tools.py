"""Tool calls, taken out of the answer.

mlx-lm knows how each model writes a call: two markers, and a parser for what is between them. The
text of a call is held back until it is complete. If it parses it is a call, and shown nowhere
else; if not, it is answer like any other text, and nothing of it is lost or mended. What is
called is not checked: thinkq runs no tools.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thinkq.client.job import Job
from thinkq.worker.cutter import Cutter

Parser = Callable[[str, Any], Any]
"""mlx-lm's: (text between the markers, the job's tools) to one call or a list of them."""


@dataclass(frozen=True)
class ToolSyntax:
    """How a model writes calls. An empty `end`: a call goes on to the end of the answer."""

    start: str
    end: str
    parse: Parser


JSON_SYNTAX = ToolSyntax("<tool_call>", "</tool_call>", lambda text, tools: json.loads(text))
"""For vocabularies that have these two markers where nothing else says how calls are written."""


def syntax_of(tokenizer: Any) -> ToolSyntax | None:
    """How a model writes calls, as mlx-lm's tokenizer wrapper says; None: no way is known."""
    if tokenizer.has_tool_calling:
        return ToolSyntax(
            tokenizer.tool_call_start, tokenizer.tool_call_end or "", tokenizer.tool_parser
        )
    added = tokenizer.get_added_vocab()
    return JSON_SYNTAX if {JSON_SYNTAX.start, JSON_SYNTAX.end} <= added.keys() else None


def offered(job: Job) -> list[dict[str, Any]] | None:
    """The tools that the model is told of: none where the job's `tool_choice` is "none"."""
    return None if job.tool_choice == "none" else job.tools or None


class ToolCalls:
    """Takes the calls out of one answer that comes in pieces.

    Args:
        syntax: How the model writes calls.
        tools: The job's tools, which some parsers read types from.
    """

    def __init__(self, syntax: ToolSyntax, tools: list[dict[str, Any]]) -> None:
        self.calls: list[dict[str, Any]] = []
        """Calls so far, in OpenAI's form; those without an id of their own lack `id`."""
        self.malformed = False
        """Whether the text of any call could not be parsed."""
        self._syntax, self._tools = syntax, tools
        self._start, self._end = self._new_cutters()
        self._body: list[str] = []

    def push(self, piece: str) -> str:
        """The text of the answer that is certainly not, or not part of, a call."""
        shown = []
        while piece:
            if not self._start.found:
                text, piece = self._start.push(piece)
                shown.append(text)
            else:
                text, piece = self._end.push(piece)
                self._body.append(text)
                if self._end.found:
                    shown.append(self._take_call(self._syntax.end))
        return "".join(shown)

    def finish(self) -> str:
        """What was held back; a call that lacks only its end marker is taken as one."""
        if not self._start.found:
            return self._start.flush()
        self._body.append(self._end.flush())
        return self._take_call("")

    def _new_cutters(self) -> tuple[Cutter, Cutter]:
        return Cutter([self._syntax.start]), Cutter([self._syntax.end] if self._syntax.end else [])

    def _take_call(self, end: str) -> str:
        """Note the call that is complete; if it is none, return its text, markers included."""
        body = "".join(self._body)
        self._body.clear()
        self._start, self._end = self._new_cutters()
        try:
            if end != self._syntax.end:
                json.loads(body)  # Cut off, only JSON fails for certain; other parsers make do.
            self.calls += _as_openai(self._syntax.parse(body, self._tools))
        except Exception:  # parsers of many hands raise anything on text that they do not expect
            self.malformed = True
            return self._syntax.start + body + end
        return ""


def _as_openai(parsed: Any) -> list[dict[str, Any]]:
    """Parsed calls in OpenAI's form. Raises ValueError, KeyError or TypeError for anything else."""
    calls = [_call(each) for each in (parsed if isinstance(parsed, list) else [parsed])]
    if not calls:
        raise ValueError("no call between the markers")
    return calls


def _call(parsed: Any) -> dict[str, Any]:
    name, arguments = parsed["name"], parsed.get("arguments") or {}
    if not name or not isinstance(name, str):
        raise ValueError("a call needs the name of a function")
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        raise ValueError("arguments must be an object")
    written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    identity = {"id": str(parsed["id"])} if parsed.get("id") else {}
    return {**identity, "type": "function", "function": {"name": name, "arguments": written}}
