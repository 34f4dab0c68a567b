"""Every error that thinkq raises, under one root."""

from __future__ import annotations


class ThinkqError(Exception):
    """The root. Its text is one clear sentence that says what to do."""


class InvalidJob(ThinkqError):
    """A job that cannot run as it is written.

    `code` is a short stable name of the fault, such as `bad_type:custom_id` or
    `unsupported:stream`. The text names the field and the reason and never repeats the prompt.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class InvalidBatch(ThinkqError):
    """A batch file with bad lines; nothing of it was queued. `errors` lists them all."""

    def __init__(self, message: str, errors: list[LineError]) -> None:
        super().__init__(message)
        self.errors = errors


class LineError(ThinkqError):
    """One bad line of a batch file: its physical line number (from 1), a code, and the reason."""

    def __init__(self, line: int, code: str, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line, self.code, self.message = line, code, message


class FileChanged(ThinkqError):
    """A batch file that is another one now than when it was checked."""


class JobFailed(ThinkqError):
    """A job that came back without a usable result. `kind` is the result's `error.kind`.

    Kinds: `context_length_exceeded`, `no_chat_template`, `template_error`, `unknown_model`,
    `budget_unenforceable`, `bad_payload`, `worker_crashed`, `internal`; and from
    `Result.require_answer` also `cancelled` and `empty_answer`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NotFound(ThinkqError):
    """No such job or batch."""


class NotFinished(ThinkqError):
    """A batch with jobs that are queued or run; it cannot be removed."""


class JobsLost(ThinkqError):
    """Jobs that can have no result any more, because Redis no longer has them."""


class ResultTimeout(ThinkqError, TimeoutError):
    """The job has not ended in the time that was given. It goes on."""


class RedisUnavailable(ThinkqError):
    """The Redis server cannot be reached, or refuses to be used."""


class SettingsError(ThinkqError):
    """A setting that is unknown or has a bad value."""
