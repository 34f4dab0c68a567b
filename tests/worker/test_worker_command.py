"""`thinkq worker` and `python -m thinkq.worker`."""

from __future__ import annotations

from pathlib import Path

from support.processes import python
from thinkq.client import locks


def test_the_help_has_examples_and_does_not_load_mlx() -> None:
    """Whoever asks for help does not want to wait for a framework."""
    code = (
        "import sys; from click.testing import CliRunner; from thinkq.worker.main import worker; "
        "print(CliRunner().invoke(worker, ['--help']).output); assert 'mlx' not in sys.modules"
    )
    with python("-c", code) as process:
        shown, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert "Examples:\n    thinkq worker\n" in shown
    for option in ("--redis", "--model", "--max-batch", "--until-eof", "--burst"):
        assert option in shown


def test_an_error_is_one_sentence_on_stderr(tmp_path: Path) -> None:
    """Exit code 1, no traceback."""
    lock = locks.take(tmp_path / "worker.lock")
    assert lock is not None
    with python("-m", "thinkq.worker", THINKQ_HOME=str(tmp_path)) as process:
        shown, errors = process.communicate(timeout=20)
    lock.close()
    assert (process.returncode, shown) == (1, "")
    assert errors.startswith("Error: a worker (pid ")
    assert errors.count("\n") == 1


def test_a_worker_leaves_without_taking_the_interpreter_down(tmp_path: Path) -> None:
    """MLX's threads abort that now and then, and a good end had the exit code of a crash."""
    code = (
        "import atexit; from unittest.mock import Mock; from thinkq.worker import main; "
        "atexit.register(print, 'taken down'); "
        "main.Process = Mock(return_value=Mock(run=Mock(return_value=0))); main.worker([])"
    )
    with python("-c", code, THINKQ_HOME=str(tmp_path)) as process:
        shown, errors = process.communicate(timeout=20)
    assert (process.returncode, shown) == (0, ""), errors
