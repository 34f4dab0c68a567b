"""Jobs rendered with a template, and the prompt read back."""

from __future__ import annotations

from typing import Any

from support.scripted import SPECIALS, make_tokenizer
from thinkq.client.job import Job, convert_job
from thinkq.worker.families import resolve
from thinkq.worker.prompt import Prompt, PromptBuilder

BOS = "<|begin|>"
OPENED, CLOSED, BARE = (
    "<|im_start|>assistant\n" + tail for tail in ("<think>\n", "<think>\n\n</think>\n\n", "")
)


class Rendered:
    """A job rendered with one template."""

    def __init__(
        self,
        template: str | None,
        job: Job,
        specials: tuple[str, ...] = SPECIALS,
        words: tuple[str, ...] = (),
    ) -> None:
        self.tokenizer: Any = make_tokenizer(template, (*specials, BOS), words)
        self.tokenizer.bos_token = BOS
        builder = PromptBuilder(self.tokenizer, resolve(self.tokenizer, None))
        self.prompt: Prompt = builder.build(job)
        self.text = str(self.tokenizer.decode(self.prompt.ids))

    def count(self, special: str) -> int:
        """How often a control token is in the prompt."""
        return self.prompt.ids.count(self.tokenizer.convert_tokens_to_ids(special))


def job(*messages: tuple[str, str] | dict[str, Any], **options: Any) -> Job:
    pairs = [
        each if isinstance(each, dict) else {"role": each[0], "content": each[1]}
        for each in messages
    ]
    return convert_job({"messages": pairs or [{"role": "user", "content": "q"}], **options})
