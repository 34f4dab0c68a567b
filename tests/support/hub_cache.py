"""Hugging Face caches with the real layout: blobs, snapshots that link to them, and refs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def add_model(cache: Path, name: str, files: dict[str, bytes | dict[str, Any]]) -> Path:
    """Put a model into the cache; returns its snapshot. A dict is written as JSON."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    for directory in (repository / "blobs", repository / "refs", snapshot):
        directory.mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for file, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        blob = repository / "blobs" / hashlib.sha256(file.encode() + data).hexdigest()
        blob.write_bytes(data)
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file).symlink_to(blob)
    return snapshot
