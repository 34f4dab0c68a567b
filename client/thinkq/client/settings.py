"""Settings: one frozen struct, made from three sources.

These are defaults, `settings.toml` in the data directory, and THINKQ_* variables; later ones win.
Every field has a variable: `max_batch` is THINKQ_MAX_BATCH. See docs/settings.md.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import platformdirs

from thinkq.client.errors import SettingsError
from thinkq.client.job_checks import NUMBERS, Limits
from thinkq.client.settings_sources import (
    DEFAULT,
    PREFIX,
    Sourced,
    check_setting,
    read_environ,
    read_table,
    read_toml,
)

SOCKET_PATH_BYTES: Final = 103
"""The longest path of a unix socket on macOS."""

SAMPLING: Final = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
)
"""The settings of sampling, by the names of a job's fields."""


class SamplingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling of jobs that leave it open; null: what the model's generation_config says."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None

    @property
    def sampling(self) -> dict[str, Any]:
        """What is set of it, by name."""
        values = {name: getattr(self, name) for name in SAMPLING}
        return {name: value for name, value in values.items() if value is not None}


class ModelSettings(SamplingSettings, frozen=True, kw_only=True):
    """Settings of one model; null: the general setting of that name."""

    max_tokens: int | None = None
    answer_reserve: float | None = None
    budget_medium: int | None = None
    budget_high: int | None = None
    budget_xhigh: int | None = None
    thinking_transition: str | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """What is set, by name."""
        values = msgspec.structs.asdict(self)
        return {name: value for name, value in values.items() if value is not None}


class Settings(SamplingSettings, frozen=True, kw_only=True):
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
    """Default thinking budgets in tokens by effort; null or -1: none."""
    thinking_transition: str | None = None
    """Text forced before the end marker when a budget closes the thinking.

    Null: the model family's own; an empty text: none.
    """
    models: dict[str, ModelSettings] = {}
    """Settings of single models, by the name that jobs and `model` give."""
    idle_unload_s: float | None = None
    """The model is unloaded after so long without a job; null: never."""
    other_models: bool = True
    """Load other models that jobs name, in turns; false leaves such jobs to other workers."""
    model_switch_s: float = 900.0
    """Jobs that name another model begin to get their turn after so long, where the loaded one has
    more of the same priority."""

    keep_awake: bool = True
    """The machine does not go to sleep while jobs run; its display may."""
    pause_on_battery_below: int | None = None
    """On battery, no job is started below this charge in percent; null: whatever the charge."""
    pause_when_hot: bool = False
    """No job is started while the system reports that heat slows it down."""

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

    def for_model(self, name: str) -> Settings:
        """The settings as they are for one model: its own table wins."""
        own = self.models.get(name)
        return self if own is None else msgspec.structs.replace(self, **own.stated)

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
    def pause_file(self) -> Path:
        """There while the daemon wants no job to be started; holds the reason."""
        return self.home_path / "paused"

    @property
    def daemon_lock(self) -> Path:
        """Locked (flock) while a daemon runs on this data directory; holds its pid."""
        return self.home_path / "daemon.lock"

    @property
    def worker_lock(self) -> Path:
        """Locked (flock) while a worker runs on this data directory; holds its pid."""
        return self.home_path / "worker.lock"


MODEL_LIMITS: Final[dict[str, Limits]] = {
    **{name: NUMBERS[name] for name in ("max_tokens", *SAMPLING)},
    "answer_reserve": (float, 0, 1),
    "repetition_penalty": (float, 0.01, 100),
    **dict.fromkeys(("budget_medium", "budget_high", "budget_xhigh"), (int, -1, None)),
}
"""The limits of the numbers in a model's table: those of a job, where a job has the field."""

LIMITS: Final[dict[str, Limits]] = {
    **MODEL_LIMITS,
    "max_batch": (int, 1, 1024),
    "memory_limit_gb": (float, 0.001, None),
    **dict.fromkeys(("heartbeat_s", "lease_s", "hang_s"), (float, 0.01, None)),
    **dict.fromkeys(("coalesce_ms", "idle_unload_s", "model_switch_s"), (float, 0, None)),
    "stream_ttl_s": (int, 1, None),
    "retention_s": (int, 1, None),
    "max_line_bytes": (int, 1, None),
    "pause_on_battery_below": (int, 1, 100),
}
"""The limits of every number among the settings."""


def default_home() -> Path:
    """The platform's usual place for a user's application data."""
    return platformdirs.user_data_path("thinkq", appauthor=False)


def find_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The data directory that is in force: THINKQ_HOME, else the platform's usual place."""
    home = environ.get("THINKQ_HOME") or default_home()
    return Path(os.path.abspath(os.path.expanduser(home)))


def settings_file(home: Path) -> Path:
    """The settings file of a data directory; it need not be there."""
    return home / "settings.toml"


def load_settings(environ: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:
    """Settings from all sources; `overrides` win. Raises SettingsError with one clear sentence."""
    values = {name: value for name, (value, _) in sourced_settings(environ, **overrides).items()}
    return Settings(**values)


def sourced_settings(
    environ: Mapping[str, str] = os.environ, **overrides: Any
) -> dict[str, Sourced]:
    """Every setting with its value and where it comes from.

    Raises SettingsError with one clear sentence.
    """
    if home := overrides.pop("home", None):
        environ = {**environ, "THINKQ_HOME": home}
    place = find_home(environ)
    # In the order in which they are written; inherited fields come first in the struct.
    order = [*Settings.__annotations__, *SAMPLING]
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    values = {name: Sourced(_default(fields[name]), DEFAULT) for name in order}
    values |= _from_file(settings_file(place))
    values |= read_environ(environ, Settings, LIMITS)
    for name, value in overrides.items():
        checked = check_setting(name, value, Settings, LIMITS, "settings")
        values[name] = Sourced(checked, "argument")
    values["home"] = Sourced(str(place), values["home"].source)
    return values


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory = field.default_factory
    return factory() if factory is not msgspec.NODEFAULT else field.default


def _from_file(path: Path) -> dict[str, Sourced]:
    table = read_toml(path)
    if "home" in table:
        raise SettingsError(
            f"{path}: home cannot be set in a file that lies in it; set {PREFIX}HOME instead"
        )
    tables = table.pop("models", {})
    values = read_table(table, Settings, LIMITS, str(path))
    if tables:
        values["models"] = _models(tables, path)
    return {name: Sourced(value, str(path)) for name, value in values.items()}


def _models(tables: Any, path: Path) -> dict[str, ModelSettings]:
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise SettingsError(f'{path}: models needs a table for each model, as [models."demo"]')
    models = {}
    for name, table in tables.items():
        where = f'{path}, [models."{name}"]'
        models[name] = ModelSettings(**read_table(table, ModelSettings, MODEL_LIMITS, where))
    return models
