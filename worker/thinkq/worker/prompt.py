"""From a job to the ids that the model reads, and whether they leave it inside a thought.

The start state is read off the rendered generation prompt's tail: thinking iff the last start
marker there stands after the last end marker. History and user text never decide it: wherever a
message contains text that looks like a control token, the template is given a stand-in for it,
and the text itself is encoded as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import meta

from thinkq.client.errors import JobFailed
from thinkq.client.job import Job, Message
from thinkq.worker.families import Markers
from thinkq.worker.literals import Literals
from thinkq.worker.tools import offered

SWITCHES = ("enable_thinking", "thinking")
"""Variables that templates read to switch thinking on and off."""

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Names under which templates look for the thinking of an old answer."""


@dataclass(frozen=True)
class Prompt:
    """What the model reads."""

    ids: list[int]
    starts_in_thinking: bool
    thinking_off: bool
    """Thinking was switched off by the job, and the template obeyed."""
    must_close: bool
    """Thinking was switched off by the job, but the template could not do it."""


class PromptBuilder:
    """Renders jobs for one tokenizer.

    Args:
        tokenizer: A Hugging Face tokenizer with a chat template.
        markers: The family's markers in this tokenizer.
    """

    def __init__(self, tokenizer: Any, markers: Markers) -> None:
        self._tokenizer, self._markers = tokenizer, markers
        self._template = _template_of(tokenizer)
        self._reads = _variables(self._template or "")
        self._literals = Literals(tokenizer, (markers.start, markers.end))

    def build(self, job: Job) -> Prompt:
        """Ids and start state of a job. Raises JobFailed.

        Its kinds: `no_chat_template`, `template_error`, and `bad_payload` for text that is no text.
        """
        if self._template is None:
            raise JobFailed(
                "no_chat_template",
                "the model has no chat template; use an instruct or reasoning model that has one",
            )
        options = self._options(job)
        prefilled = job.messages[-1].role == "assistant"
        messages = [self._message(message) for message in job.messages]
        text = self._render(messages, job, options, prefill=prefilled, generate=not prefilled)
        history = self._render(messages, job, options, prefill=prefilled, generate=False)
        # A template that always opens the answer shows no difference; then all of it has to do.
        in_thinking = self._ends_in_thinking(_added(text, history) or text)
        off, read = job.thinking_switch is False, self._reads & options.keys()
        switched = not read.isdisjoint(SWITCHES)
        return Prompt(
            ids=self._literals.encode(text),
            starts_in_thinking=in_thinking,
            thinking_off=off and switched and not in_thinking,
            must_close=off and (in_thinking or not (switched or "reasoning_effort" in read)),
        )

    def _options(self, job: Job) -> dict[str, Any]:
        """The template's variables: the job's own, and what its switches mean to this one."""
        effort = {"reasoning_effort": job.reasoning_effort, "tool_choice": job.tool_choice}
        known = {**dict.fromkeys(SWITCHES, job.thinking_switch), **effort}
        read = {
            name: value
            for name, value in known.items()
            if name in self._reads and value is not None
        }
        return {**self._literals.guard(job.chat_template_kwargs or {}), **read}

    def _render(
        self,
        messages: list[dict[str, Any]],
        job: Job,
        options: dict[str, Any],
        *,
        prefill: bool,
        generate: bool,
    ) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages,
                tools=self._literals.guard(offered(job)),
                tokenize=False,
                add_generation_prompt=generate,
                continue_final_message=prefill,
                **options,
            )
        # A template is a program that came with the model: it raises anything.
        except Exception as error:
            reason = str(error).partition("\n")[0][:300] or type(error).__name__
            raise JobFailed(
                "template_error", f"the model's chat template refuses this job: {reason}"
            ) from None
        if not _is_unicode(text):
            reason = "a text of the job holds a lone surrogate, which is no character; remove it"
            raise JobFailed("bad_payload", reason)
        return text

    def _message(self, message: Message) -> dict[str, Any]:
        role = message.role
        if role == "developer" and "developer" not in (self._template or ""):
            role = "system"
        fields: dict[str, Any] = {"role": role, "content": message.content or ""}
        if message.reasoning_content is not None:
            fields |= dict.fromkeys(_REASONING_FIELDS, message.reasoning_content)
        if message.tool_calls is not None:
            fields["tool_calls"] = [_with_parsed_arguments(call) for call in message.tool_calls]
        for name in ("name", "tool_call_id"):
            if getattr(message, name) is not None:
                fields[name] = getattr(message, name)
        guarded: dict[str, Any] = self._literals.guard(fields)
        return guarded

    def _ends_in_thinking(self, tail: str) -> bool:
        markers = self._markers
        if markers.by == "text":  # the pieces of a marker may have merged with their neighbours
            return tail.rfind(markers.start) > tail.rfind(markers.end)
        ids = self._literals.encode(tail)
        return _last(ids, markers.start_ids) > _last(ids, markers.end_ids)


def _added(text: str, history: str) -> str:
    """What a prompt has beyond its history: all from the first difference on."""
    if text.startswith(history):
        return text[len(history) :]
    pairs = zip(text, history, strict=False)
    at = next((i for i, (one, other) in enumerate(pairs) if one != other), len(text))
    return text[at:]


def _template_of(tokenizer: Any) -> str | None:
    """The tokenizer's chat template; None without one, or where it has several and no default."""
    try:
        template: str = tokenizer.get_chat_template()
    except ValueError:
        return None
    return template


def _variables(template: str) -> frozenset[str]:
    """Names that a template expects from outside."""
    parser = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"])
    try:
        return frozenset(meta.find_undeclared_variables(parser.parse(template)))
    except jinja2.TemplateError:
        # Tags of transformers' own: fall back to the plain words.
        return frozenset(name for name in (*SWITCHES, "reasoning_effort") if name in template)


def _with_parsed_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """A call of the history with its arguments as an object, which templates iterate over."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _is_unicode(text: str) -> bool:
    """Whether there is no lone surrogate in a text: only then has it bytes, and ids."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _last(ids: Sequence[int], marker: Sequence[int]) -> int:
    """Where the marker last begins in ids; -1 if it does not occur."""
    for i in range(len(ids) - len(marker), -1, -1):
        if tuple(ids[i : i + len(marker)]) == tuple(marker):
            return i
    return -1
