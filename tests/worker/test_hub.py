"""Where a model's folder comes from. No test here needs a network."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from thinkq.client.errors import JobFailed
from thinkq.worker import demo, hub, lm


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert hub.fetch(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/nowhere/model", "there is no such folder"),
        ("thinkq-nobody/no-such-model", "neither a folder nor in the hub's cache"),
        ("no such model", "Repo id must use"),
    ],
)
def test_a_model_that_is_nowhere_is_one_sentence_with_the_reason(
    name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub counts as out of reach, as it does on a plane."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(JobFailed, match=reason) as raised:
        lm.load(name)
    assert raised.value.kind == "unknown_model"
    assert repr(name) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_download_is_told_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library makes bars of the class it is given; those of files, not bytes, are not told.

    What was downloaded brings its own defaults of sampling.
    """
    model = shutil.copytree(str(demo.path()), tmp_path / "model")
    (model / "generation_config.json").write_text('{"temperature": 0.6}')
    notes: list[str] = []

    def download(name: str, *, tqdm_class: Any, **_: Any) -> str:
        files = tqdm_class(total=2, desc="files")
        bytes_come = tqdm_class(total=0, unit="B", unit_scale=True, desc="bytes")
        bytes_come.total += 3e9
        files.update()
        bytes_come.update(1.5e9)
        bytes_come.update(1.5e9)
        return str(model)

    monkeypatch.setattr(hub, "snapshot_download", download)
    loaded = lm.load("some/model", notes.append)
    assert notes == [
        "the worker is downloading some/model: 1.50 of 3.00 GB",
        "the worker is downloading some/model: 3.00 of 3.00 GB",
    ]
    assert loaded.generation_config == {"temperature": 0.6}
