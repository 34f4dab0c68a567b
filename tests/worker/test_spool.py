"""Results on local disk."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from thinkq.client.result import SCHEMA, Result
from thinkq.worker.spool import Spool, Spooled


def entry(execution_id: str, answer: str = "x") -> Spooled:
    result = Result(job_id="b1-1", status="done", finish_reason="stop", answer=answer)
    return Spooled(job_id="b1-1", queue="thinkq:normal", execution_id=execution_id, result=result)


def test_entries_come_back_oldest_first_until_they_are_removed(tmp_path: Path) -> None:
    """By another process, which knows only the directory."""
    spool = Spool(tmp_path / "spool")
    for age, name in ((10, "young"), (30, "old"), (20, "middle")):
        spool.put(entry(name, answer=name))
        os.utime(tmp_path / "spool" / f"{name}.json", (1e9 - age, 1e9 - age))
    again = Spool(tmp_path / "spool")
    assert [found.execution_id for found in again.entries()] == ["old", "middle", "young"]
    again.remove("middle")
    again.remove("middle")
    assert [found.result.answer for found in again.entries()] == ["old", "young"]


def test_a_torn_file_is_removed_and_the_rest_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its writer died in the middle, before the commit: the job will run again."""
    spool = Spool(tmp_path)
    spool.put(entry("whole"))
    (tmp_path / "torn.json").write_bytes((tmp_path / "whole.json").read_bytes()[:-20])
    assert [found.execution_id for found in spool.entries()] == ["whole"]
    assert not (tmp_path / "torn.json").exists()
    assert "torn" in caplog.text


def test_a_newer_worker_s_file_is_kept_for_it(tmp_path: Path) -> None:
    """An older thinkq does not understand it, and must not destroy it."""
    spool = Spool(tmp_path)
    spool.put(msgspec.structs.replace(entry("newer"), schema=SCHEMA + 1))
    assert spool.entries() == []
    assert (tmp_path / "newer.json").exists()


def test_a_disk_that_takes_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller must know that the result is only in memory."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    spool = Spool(tmp_path)
    with pytest.raises(OSError, match="No space"):
        spool.put(entry("x"))
    assert spool.failing
    assert not list(tmp_path.iterdir()), "half a file is no use to anybody"
    monkeypatch.undo()
    spool.put(entry("x"))
    assert not spool.failing


def test_a_file_in_place_of_the_directory_is_an_error_of_the_put_alone(tmp_path: Path) -> None:
    """There is nothing to read and nothing to remove."""
    (tmp_path / "spool").touch()
    spool = Spool(tmp_path / "spool")
    with pytest.raises(OSError, match="exists"):
        spool.put(entry("x"))
    assert spool.entries() == []
    spool.remove("x")
