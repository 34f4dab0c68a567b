"""Settings: one frozen struct, made from three sources.

These are defaults, `settings.toml` in the data directory, and THINKQ_* variables; later ones win.
Every field has a variable: `max_batch` is THINKQ_MAX_BATCH.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import platformdirs

from thinkq.client.errors import SettingsError
from thinkq.client.job import nearest

SOCKET_PATH_BYTES: Final = 103
"""The longest path of a unix socket on macOS."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Lengths of time are seconds unless the name says otherwise."""

    home: str
    """The data directory: socket, append-only file, spool, logs, locks."""
    redis_url: str | None = None
    """A Redis of your own; null: the embedded server on a unix socket under `home`."""
    allow_open_redis: bool = False
    """Use a Redis on the network although it asks for no password."""
    allow_eviction: bool = False
    """Use a Redis that drops keys when it is full, queued jobs among them."""

    model: str = "demo"
    """The model of jobs that name none: `demo`, a hub name, or a path."""
    other_models: bool = True
    """Load other models that jobs name, in turns; false leaves such jobs to other workers."""
    model_switch_s: float = 900.0
    """A loaded model has so much time before jobs of another one, of the same priority, get theirs.
    """
    idle_unload_s: float | None = None
    """The model is unloaded after so long without a job; null: never."""
    max_batch: int = 16
    """Jobs decoded at once."""
    memory_limit_gb: float | None = None
    """Memory that model and caches may take together; null: what the device recommends."""
    max_tokens: int = 8192
    """`max_tokens` of jobs that state none."""
    answer_reserve: float = 0.25
    """Share of `max_tokens` that thinking may never take; for jobs without `answer_reserve`."""
    budget_medium: int | None = 4096
    budget_high: int | None = 16384
    budget_xhigh: int | None = None
    """Default thinking budgets in tokens by effort; null: none."""
    thinking_transition: str | None = None
    """Text forced before the end marker when a budget closes the thinking.

    Null: the model family's own.
    """

    heartbeat_s: float = 10.0
    """How often a worker renews its leases."""
    lease_s: float = 60.0
    """How long a job stays with a worker that is not heard of."""
    hang_s: float = 120.0
    """A worker whose model has made no progress for so long ends itself."""
    coalesce_ms: float = 30.0
    """Text is published at most this long after it was decoded."""
    stream_ttl_s: int = 86_400
    """A job's stream is kept this long after the job's end."""
    retention_s: int | None = None
    """Results are kept so long; null: until removed."""
    max_line_bytes: int = 16 * 1024 * 1024
    """The longest line of a batch file."""

    @property
    def home_path(self) -> Path:
        """The data directory as a path."""
        return Path(self.home)

    @property
    def socket_path(self) -> Path:
        """Where the embedded Redis listens.

        In the data directory, or in a short private one where that path is too long for a socket.
        """
        path = self.home_path / "redis.sock"
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
            return path
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"thinkq-{os.getuid()}-{digest}" / "redis.sock"

    @property
    def effective_redis_url(self) -> str:
        """`redis_url`, else the embedded server's socket as a URL."""
        return self.redis_url or f"unix://{quote(str(self.socket_path))}"

    @property
    def embedded_redis(self) -> bool:
        """Whether thinkq runs its own Redis."""
        return self.redis_url is None

    @property
    def logs_path(self) -> Path:
        """Where processes in the background write their logs."""
        return self.home_path / "logs"

    @property
    def daemon_lock(self) -> Path:
        """Locked (flock) while a daemon runs on this data directory; holds its pid."""
        return self.home_path / "daemon.lock"

    @property
    def worker_lock(self) -> Path:
        """Locked (flock) while a worker runs on this data directory; holds its pid."""
        return self.home_path / "worker.lock"


def default_home() -> Path:
    """The platform's usual place for a user's application data."""
    return platformdirs.user_data_path("thinkq", appauthor=False)


def load_settings(environ: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:
    """Settings from all sources; `overrides` win. Raises SettingsError with one clear sentence."""
    home = overrides.get("home") or environ.get("THINKQ_HOME") or default_home()
    home = os.path.abspath(os.path.expanduser(home))
    values = (
        _from_toml(Path(home) / "settings.toml")
        | _from_environ(environ)
        | overrides
        | {"home": home}
    )
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"settings: {error}") from None


def _known(name: str, where: str) -> str:
    if name not in Settings.__struct_fields__:
        raise SettingsError(
            f"{where}: unknown setting `{name}`{nearest(name, Settings.__struct_fields__)}"
        )
    return name


def _from_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None
    return {_known(name, str(path)): value for name, value in table.items()}


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith("THINKQ_") or variable == "THINKQ_HOME":
            continue
        name = _known(variable.removeprefix("THINKQ_").lower(), variable)
        kind = Settings.__annotations__[name]
        try:
            values[name] = msgspec.convert(text, _FIELD_TYPES[name], strict=False)
        except msgspec.ValidationError:
            raise SettingsError(
                f"{variable}: {text[:40]!r} is not a value of type {kind}"
            ) from None
    return values


_FIELD_TYPES: Final = {field.name: field.type for field in msgspec.structs.fields(Settings)}
