"""`thinkq models`: the models on this machine, and which of them fit its memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import click
import msgspec
from huggingface_hub import CachedRepoInfo, CacheNotFound, HFCacheInfo, constants, scan_cache_dir

from thinkq.client.columns import columns, shown_bytes
from thinkq.client.settings import Settings, load_settings
from thinkq.worker import demo, lm
from thinkq.worker.model_files import ModelFacts, read_facts

TIGHT: Final = 0.9
"""Weights that take more than this share of the memory leave little for the caches of jobs."""

Fit = Literal["yes", "tight", "no"]


class Memory(msgspec.Struct, frozen=True):
    """The memory that models are judged by."""

    limit_bytes: int
    source: str
    """Who says so."""

    def fit(self, weights_bytes: int) -> Fit:
        """Whether weights of this size fit."""
        if weights_bytes > self.limit_bytes:
            return "no"
        return "tight" if weights_bytes > TIGHT * self.limit_bytes else "yes"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the list."""

    name: str
    """What jobs and the setting `model` call it."""
    default: bool = False
    """Whether it is the one of the setting `model`."""
    path: str | None = None
    disk_bytes: int = 0
    """All its files and versions."""
    fits: Fit | None = None
    facts: ModelFacts


def memory(settings: Settings) -> Memory:
    """What the engine goes by when it admits jobs."""
    if settings.memory_limit_gb is not None:
        return Memory(int(settings.memory_limit_gb * 1e9), "memory_limit_gb")
    recommended = lm.recommended_memory() is not None
    source = "the device's recommendation" if recommended else "three quarters of memory"
    return Memory(lm.memory_limit(), source)


def inventory(settings: Settings) -> list[Entry]:
    """`demo`, the model of the settings, and every model in the Hugging Face cache, by name.

    Uses no network.
    """
    limit = memory(settings)
    entries = {entry.name: entry for entry in _cached(limit)}
    entries["demo"] = _on_disk("demo", demo.path(), limit)
    name = settings.model
    if name not in entries:
        path = Path(name).expanduser()
        entries[name] = _on_disk(name, path, limit) if path.is_dir() else _absent(name)
    entries[name] = msgspec.structs.replace(entries[name], default=True)
    return sorted(entries.values(), key=lambda entry: (not entry.default, entry.name.lower()))


def _on_disk(name: str, directory: Path, limit: Memory) -> Entry:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return _entry(name, directory, sum(path.stat().st_size for path in files), limit)


def _entry(name: str, directory: Path, disk_bytes: int, limit: Memory) -> Entry:
    facts = read_facts(directory)
    fits = limit.fit(facts.weights_bytes) if facts.weights_bytes else None
    return Entry(name=name, path=str(directory), disk_bytes=disk_bytes, fits=fits, facts=facts)


def _absent(name: str) -> Entry:
    looks_like_a_path = name.startswith((".", "/", "~"))
    problem = (
        "there is no such directory; correct the setting `model`"
        if looks_like_a_path
        else "not downloaded; the first job downloads it"
    )
    return Entry(name=name, facts=ModelFacts(problem=problem))


def _cached(limit: Memory) -> Iterator[Entry]:
    """The models of the cache, those with a damaged place there too."""
    root = Path(constants.HF_HUB_CACHE)
    try:
        cache = scan_cache_dir(root)
    except (CacheNotFound, ValueError):
        return
    for repository in cache.repos:
        if repository.repo_type == "model" and repository.revisions:
            snapshot = _snapshot(repository)
            yield _entry(repository.repo_id, snapshot, repository.size_on_disk, limit)
    yield from _damaged(root, cache)


def _snapshot(repository: CachedRepoInfo) -> Path:
    """The version that mlx-lm loads: `main`, else the newest."""
    main = repository.refs.get("main")
    newest = max(repository.revisions, key=lambda revision: revision.last_modified)
    return Path((main or newest).snapshot_path)


def _damaged(root: Path, cache: HFCacheInfo) -> Iterator[Entry]:
    """Models that the scan has left out because their place in the cache is not as it should be."""
    scanned = {Path(repository.repo_path) for repository in cache.repos}
    for directory in set(root.glob("models--*")) - scanned:
        name = directory.name.removeprefix("models--").replace("--", "/")
        problem = f"damaged in the cache; remove {directory}, and the first job downloads it again"
        yield Entry(name=name, path=str(directory), facts=ModelFacts(problem=problem))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def models(as_json: bool) -> None:
    """List the models on this machine, and say which of them fit its memory.

    These are `demo`, the model of the settings (marked *), and what is in the Hugging Face cache.

    \b
    Example:
      thinkq models
    """
    settings = load_settings()
    entries, limit = inventory(settings), memory(settings)
    if as_json:
        click.echo(msgspec.json.encode({"memory": limit, "models": entries}))
        return
    for line in _lines(entries, limit):
        click.echo(line)


def _lines(entries: list[Entry], limit: Memory) -> Iterator[str]:
    head = ("MODEL", "DISK", "WEIGHTS", "ARCHITECTURE", "THINKING", "FITS", "")
    yield from columns([head, *map(_row, entries)])
    yield (
        f"\nFits: the weights against {shown_bytes(limit.limit_bytes)} ({limit.source}); "
        "tight: less than a tenth of it is left for the caches of jobs."
    )


def _row(entry: Entry) -> tuple[str, ...]:
    facts = entry.facts
    return (
        f"{entry.name} *" if entry.default else entry.name,
        shown_bytes(entry.disk_bytes) if entry.disk_bytes else "-",
        f"{shown_bytes(facts.weights_bytes)} {facts.quantization or ''}"
        if facts.weights_bytes
        else "-",
        facts.architecture or "-",
        f"{facts.family}, by {facts.budget}" if facts.family else "-",
        entry.fits or "-",
        facts.problem or "",
    )
