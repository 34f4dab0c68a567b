"""From a job to the ids that the model reads, and whether they leave it inside a thought.

The start state is read off the rendered generation prompt's tail, by token ids: thinking iff the last
start marker there stands after the last end marker. History and user text never decide it, and text
that looks like a control token is encoded as plain text wherever a message contains it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import meta

from thinkq.client.errors import JobFailed
from thinkq.client.job import Job, Message
from thinkq.worker.families import Markers

# Stand-ins for control-token text in messages: one character of a private plane for each.
_FIRST_STAND_IN = 0xF0000


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
        template = tokenizer.get_chat_template() if tokenizer.chat_template else None
        self._template: str | None = template
        self._reads = _variables(template) if template else frozenset()
        controls = {*tokenizer.get_added_vocab(), markers.start, markers.end}
        self._controls = sorted((text for text in controls if len(text) > 1), key=len, reverse=True)
        self._stand_ins = {text: chr(_FIRST_STAND_IN + i) for i, text in enumerate(self._controls)}
        self._texts = {stand_in: text for text, stand_in in self._stand_ins.items()}
        self._control_pattern = re.compile("|".join(map(re.escape, self._controls)) or r"(?!)")
        self._stand_in_pattern = re.compile(f"([{''.join(self._texts)}])" if self._texts else r"((?!))")

    def build(self, job: Job) -> Prompt:
        """Ids and start state of a job. Raises JobFailed (no_chat_template, template_error)."""
        if self._template is None:
            raise JobFailed(
                "no_chat_template",
                "the model has no chat template; use an instruct or reasoning model, or one whose tokenizer has one",
            )
        messages = [self._message(message) for message in job.messages]
        options = self._options(job)
        prefilled = job.messages[-1].role == "assistant"
        text = self._render(messages, options, job, prefill=prefilled, generate=not prefilled)
        history = self._render(messages, options, job, prefill=prefilled, generate=False)
        tail = text[len(history) :] if text.startswith(history) else text
        in_thinking = self._ends_in_thinking(tail)
        off = job.thinking_switch is False
        return Prompt(self.encode(text), in_thinking, off and not in_thinking, off and self._cannot_switch(in_thinking))

    def encode(self, text: str) -> list[int]:
        """Ids of a rendered prompt; stand-ins become the plain text that they stand for."""
        ids: list[int] = []
        for i, piece in enumerate(self._stand_in_pattern.split(text)):
            if i % 2 == 0:
                ids += self._plain(piece)
            else:
                # Cut after its first character, a control token's text is no longer one.
                control = self._texts[piece]
                ids += self._plain(control[:1]) + self._plain(control[1:])
        return ids

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False) if text else []
        return ids

    def _cannot_switch(self, in_thinking: bool) -> bool:
        return in_thinking or not self._reads & {"enable_thinking", "reasoning_effort"}

    def _options(self, job: Job) -> dict[str, Any]:
        options = dict(job.chat_template_kwargs or {})
        if "enable_thinking" in self._reads and job.thinking_switch is not None:
            options["enable_thinking"] = job.thinking_switch
        if "reasoning_effort" in self._reads and job.reasoning_effort is not None:
            options["reasoning_effort"] = job.reasoning_effort
        return options

    def _message(self, message: Message) -> dict[str, Any]:
        role = message.role
        if role == "developer" and "developer" not in (self._template or ""):
            role = "system"
        fields: dict[str, Any] = {"role": role, "content": self._guard(message.content or "")}
        if message.reasoning_content is not None:
            fields["reasoning_content"] = self._guard(message.reasoning_content)
        for name in ("name", "tool_calls", "tool_call_id"):
            if getattr(message, name) is not None:
                fields[name] = self._guard_deep(getattr(message, name))
        return fields

    def _guard(self, text: Any) -> str:
        return self._control_pattern.sub(lambda match: self._stand_ins[match[0]], text)

    def _guard_deep(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._guard(value)
        if isinstance(value, list):
            return [self._guard_deep(each) for each in value]
        if isinstance(value, dict):
            return {self._guard(name): self._guard_deep(each) for name, each in value.items()}
        return value

    def _render(
        self, messages: list[dict[str, Any]], options: dict[str, Any], job: Job, *, prefill: bool, generate: bool
    ) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages,
                tools=self._guard_deep(job.tools),
                tokenize=False,
                add_generation_prompt=generate,
                continue_final_message=prefill,
                **options,
            )
        except (jinja2.TemplateError, ValueError, TypeError, KeyError) as error:
            reason = str(error).partition("\n")[0][:300]
            raise JobFailed("template_error", f"the model's chat template refuses these messages: {reason}") from None
        return text

    def _ends_in_thinking(self, tail: str) -> bool:
        ids = self.encode(tail)
        return _last(ids, self._markers.start_ids) > _last(ids, self._markers.end_ids)


def _variables(template: str) -> frozenset[str]:
    """Names that a template expects from outside."""
    try:
        return frozenset(meta.find_undeclared_variables(jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(template)))
    except jinja2.TemplateError:
        # Tags of transformers' own: fall back to the plain words.
        return frozenset(name for name in ("enable_thinking", "reasoning_effort") if name in template)


def _last(ids: Sequence[int], marker: Sequence[int]) -> int:
    """Where the marker last begins in ids; -1 if it does not occur."""
    if not marker:
        return -1
    for i in range(len(ids) - len(marker), -1, -1):
        if tuple(ids[i : i + len(marker)]) == tuple(marker):
            return i
    return -1
