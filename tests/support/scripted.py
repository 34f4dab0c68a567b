"""A model that follows a script, for tests of the decode loop that know every token beforehand.

Its vocabulary is the 256 bytes, so that a letter is a token, and the control tokens of ChatML. It
takes part in the real loop: a real tokenizer, real arrays, a cache that joins, filters and
remembers what it was fed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from thinkq.client.job import Job
from thinkq.client.settings import Settings, load_settings
from thinkq.worker.engine import Engine

SPECIALS = ("<|im_end|>", "<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
EOS, CLOSE, OPEN = "<|im_end|>", "</think>", "<think>"

TEMPLATE = (
    "{%- for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}"
    "{%- else %}{{ '<think>\n' }}{%- endif %}{%- endif %}"
)
"""Opens the block unless thinking is switched off, as Qwen3.5's does."""

UNOPENED_TEMPLATE = TEMPLATE.replace("{{ '<think>\n' }}", "{{ '' }}")
"""Leaves it to the model to open the block, as Qwen3's does."""

Script = Callable[[list[str]], str]
"""What the model wants to write next, given what it was fed since its prompt."""


def make_tokenizer(
    template: str | None = TEMPLATE,
    specials: Sequence[str] = SPECIALS,
    words: Sequence[str] = (),
) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer without merges.

    It has a token for each byte, each control token, and each of `words`.
    """
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *words]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in specials]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS)
    fast.chat_template = template
    return fast


def natural(
    thinking: Sequence[str], answer: Sequence[str], after_close: Sequence[str] | None = None
) -> Script:
    """Thinks as scripted, the last token for ever; behind a close it answers, then ends.

    It closes only if the script does.
    """
    answer = list(answer if after_close is None else after_close)

    def script(fed: list[str]) -> str:
        if CLOSE in fed:
            at = len(fed) - 1 - fed[::-1].index(CLOSE)
            step = len(fed) - at - 1
            return answer[step] if step < len(answer) else EOS
        return thinking[len(fed)] if len(fed) < len(thinking) else thinking[-1]

    return script


class ScriptCache:
    """One layer's cache: for each row, the ids that the model was fed."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = rows
        self.lengths: list[int] | None = None
        self.state: list[mx.array] = []
        self.nbytes = 0

    def merge(self, caches: Sequence[ScriptCache]) -> ScriptCache:
        """A batch of single rows.

        The lists are shared, so that a test can look at them afterwards.
        """
        return ScriptCache([row for cache in caches for row in cache.rows])

    def prepare(self, *, lengths: list[int], right_padding: list[int]) -> None:
        """Prompts of different lengths are about to be read, padded on the right."""
        self.lengths = lengths

    def finalize(self) -> None:
        """They were read."""
        self.lengths = None

    def extend(self, other: ScriptCache) -> None:
        """Append another's rows."""
        self.rows = self.rows + other.rows

    def filter(self, keep: Sequence[int]) -> None:
        """Keep only these rows."""
        self.rows = [self.rows[i] for i in keep]


class ScriptedModel:
    """Writes what its scripts say. A prompt's last user character picks the script: `0`, `1`, ...

    `fed` holds, for every row that was ever prefilled, the ids it was fed, prompt included. The
    script's choice has logit 10 and every second choice (`second`) logit 5, so that a barred id has
    a successor.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, scripts: Sequence[Script], second: str = "x"
    ) -> None:
        self.tokenizer, self.scripts, self.second = tokenizer, list(scripts), second
        self.args = SimpleNamespace(
            model_type="scripted", vocab_size=len(tokenizer), max_position_embeddings=100_000
        )
        self.fed: list[list[int]] = []
        self._texts: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._prompts: dict[int, int] = {}

    def make_cache(self) -> list[ScriptCache]:
        """mlx-lm asks the model for its cache."""
        row: list[int] = []
        self.fed.append(row)
        return [ScriptCache([row])]

    def __call__(self, ids: mx.array, cache: list[ScriptCache]) -> mx.array:
        logits = np.zeros((ids.shape[0], 1, self.args.vocab_size), np.float32)
        fed: list[list[int]] = ids.tolist()  # type: ignore[assignment]  # a list for each row
        for i, (row, new) in enumerate(zip(cache[0].rows, fed, strict=True)):
            first = not row
            row.extend(new[: cache[0].lengths[i]] if cache[0].lengths else new)
            if first:  # a prompt is read at once but for its last id, which the first turn feeds
                self._prompts[id(row)] = len(row) + 1
                continue
            logits[i, 0, self._token(self.second)] = 5.0
            logits[i, 0, self._token(self._next(row))] = 10.0
        return mx.array(logits)

    def texts(self, ids: Sequence[int]) -> list[str]:
        """Tokens as their texts."""
        return [self._texts.get(i) or self._texts.setdefault(i, self._text(i)) for i in ids]

    def written(self, row: int = 0) -> list[str]:
        """What a row was fed after its prompt.

        Its last token is included: it is fed while it is read.
        """
        ids = [ids for ids in self.fed if len(ids) > 1][row]
        return self.texts(ids[self._prompts[id(ids)] :])

    def _text(self, token: int) -> str:
        text: str = self.tokenizer.decode([token])  # type: ignore[assignment]  # one list, one text
        return text

    def _token(self, text: str) -> int:
        if text not in self._ids:
            (self._ids[text],) = self.tokenizer.encode(text, add_special_tokens=False)
        return self._ids[text]

    def _next(self, row: list[int]) -> str:
        end_of_user = row.index(self._token(EOS))
        script = self.scripts[int(self._text(row[end_of_user - 1]))]
        return script(self.texts(row[self._prompts[id(row)] :]))


def scripted_engine(
    *scripts: Script,
    template: str | None = TEMPLATE,
    specials: Sequence[str] = SPECIALS,
    words: Sequence[str] = (),
    settings: Settings | None = None,
    **options: Any,
) -> Engine:
    """An engine over a scripted model; job `ask(i)` runs script i."""
    tokenizer = make_tokenizer(template, specials, words)
    model = ScriptedModel(tokenizer, scripts)
    return Engine(
        model, tokenizer, settings=settings or load_settings({}, home="/nonexistent"), **options
    )


def ask(script: int = 0, **options: Any) -> Job:
    """A job that runs a script."""
    return Job(messages=[{"role": "user", "content": f"q{script}"}], **options)  # type: ignore[list-item]
