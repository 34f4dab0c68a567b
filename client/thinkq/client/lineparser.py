"""One line of a batch file: bytes to a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from thinkq.client import openai_format
from thinkq.client.errors import InvalidJob
from thinkq.client.job import Job, convert_job, nearest

NAME_CHARACTERS: Final = 64


def decode_line(raw: bytes) -> dict[str, Any]:
    """The object that a line holds. Raises InvalidJob."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        try:
            raw.decode()
        except UnicodeDecodeError as encoding:
            reason = f"not UTF-8 (byte {encoding.start}); save the file as UTF-8"
            raise InvalidJob("bad_encoding", reason) from None
        raise InvalidJob("bad_json", f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidJob("bad_type:line", "a line must be one JSON object, a job")
    return value


class LineParser:
    """Makes jobs of lines.

    `defaults` fill in what a line does not state itself; a model among them also replaces those of
    OpenAI lines.
    """

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._defaults = defaults
        self._unknown: dict[str, int] = {}

    def job(self, number: int, fields: dict[str, Any]) -> Job:
        """The job on a line; it has a `custom_id`. Raises InvalidJob."""
        if "body" in fields:
            fields, unknown = openai_format.job_fields(fields)
            for name in unknown:
                self._unknown.setdefault(name[:NAME_CHARACTERS], number)
            # An OpenAI line has to name a model, and it is one of theirs.
            fields["model"] = self._defaults.get("model") or fields.get("model")
        elif fields.get("custom_id") is None:
            fields["custom_id"] = f"line-{number}"
        return convert_job(fields | self._missing(fields))

    @property
    def warnings(self) -> list[str]:
        """One for each unknown field of the OpenAI lines so far."""
        known = tuple(openai_format.BODY_FIELDS)
        return [
            f"line {number}: unknown field `{name}` is ignored, here and further on"
            f"{nearest(name, known)}"
            for name, number in self._unknown.items()
        ]

    def _missing(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults of what the line does not state."""
        stated = {name for name, value in fields.items() if value is not None}
        if "max_completion_tokens" in stated:
            stated.add("max_tokens")
        return {name: value for name, value in self._defaults.items() if name not in stated}
