"""Models on disk: a folder, or a model of the Hugging Face hub, downloaded where it is missing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from mlx_lm.utils import DEFAULT_ALLOW_PATTERNS
from tqdm.auto import tqdm  # type: ignore[import-untyped]  # has none

from thinkq.worker.task import Note, no_note


def fetch(name: str, note: Note = no_note) -> Path:
    """The folder of a model. Raises OSError or ValueError whose first line says why there is none.

    `note` is told how far a download has come.
    """
    path = Path(name).expanduser()
    if path.exists():
        return path
    if path.is_absolute():
        raise FileNotFoundError("there is no such folder")
    bar = _bar(name, note)
    try:
        found = snapshot_download(name, allow_patterns=DEFAULT_ALLOW_PATTERNS, tqdm_class=bar)
    except GatedRepoError:
        raise PermissionError("the hub wants a login for it: `hf auth login`") from None
    except RepositoryNotFoundError:
        raise FileNotFoundError("the hub has no public model of that name") from None
    except LocalEntryNotFoundError:
        raise FileNotFoundError(
            "it is neither a folder nor in the hub's cache here, and the hub cannot be reached"
        ) from None
    return Path(found)


def _bar(name: str, note: Note) -> type[Any]:
    """A progress bar that draws nothing: it tells of bytes that have come."""

    class Bar(tqdm):  # type: ignore[misc]  # untyped
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs | {"file": io.StringIO()})

        def update(self, n: float | None = 1) -> Any:
            drawn = super().update(n)
            if self.unit == "B" and self.total:
                come, total = self.n / 1e9, self.total / 1e9
                note(f"the worker is downloading {name}: {come:,.2f} of {total:,.2f} GB")
            return drawn

    return Bar
