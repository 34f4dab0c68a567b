"""Checks of the machine: Python, MLX, compiler, BLAS, model, disk."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from thinkq.client.columns import shown_bytes
from thinkq.daemon.doctor.finding import Check, Installation, Verdict, counted, fail, ok, warn

MINIMUM_PYTHON: Final = (3, 11)
LITTLE_DISK_BYTES: Final = 2_000_000_000
NO_DISK_BYTES: Final = 200_000_000

FAST_BLAS: Final = re.compile(r"openblas|mkl|blis|flexiblas|armpl")
"""Libraries that stand in for the reference BLAS."""

PROGRAM: Final = b'#include <cmath>\nextern "C" double f(double x) { return std::exp(x); }\n'
"""What MLX has compiled looks like this."""


def python(_: Installation) -> Verdict:
    """Version and processor."""
    shown = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < MINIMUM_PYTHON:
        return fail(f"{shown} is too old", "use Python 3.11 or newer")
    if sys.platform == "darwin" and platform.machine() != "arm64":
        return fail(
            f"{shown} does not run as a program for Apple's chips",
            "install a Python for arm64; this one is for Intel and runs under Rosetta",
        )
    return ok(shown)


def mlx(_: Installation) -> Verdict:
    """Whether MLX is there, and on what it computes."""
    try:
        import mlx.core as mx

        versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in ("mlx", "mlx-lm"))
    except ImportError as error:
        return fail(
            f"MLX cannot be imported ({error})", "install it with: pip install 'thinkq[worker]'"
        )
    if mx.metal.is_available():
        return ok(f"{versions}, on the GPU of {mx.device_info()['device_name']}")
    if sys.platform == "darwin":
        return fail(
            f"{versions}, but Metal is not available",
            "run it on a Mac with Apple's chip, as a user who is logged in, in no virtual machine",
        )
    return ok(f"{versions}, on the CPU")


def compiler(_: Installation, environ: Mapping[str, str] = os.environ) -> Verdict | None:
    """On a CPU, MLX has g++ compile fused operations; without g++ it computes them one by one."""
    if sys.platform == "darwin":
        return None
    if "MLX_DISABLE_COMPILE" in environ:
        return ok("MLX compiles nothing (MLX_DISABLE_COMPILE)")
    if shutil.which("g++", path=environ.get("PATH")) is None:
        return ok("no g++: MLX computes each operation by itself, which works as well")
    command = ["g++", "-std=c++17", "-fPIC", "-shared", "-x", "c++", "-", "-o", os.devnull]
    try:
        tried = subprocess.run(command, input=PROGRAM, capture_output=True, timeout=3, env=environ)
    except subprocess.TimeoutExpired:
        return warn(
            "g++ takes longer than 3 s for a line of code", "see what keeps the machine busy"
        )
    if tried.returncode:
        reason = (tried.stderr.decode(errors="replace").strip().splitlines() or ["no reason"])[0]
        return fail(
            f"g++ is there but cannot compile ({reason[:120]}), so every model fails",
            "install the whole compiler (Debian: apt install g++), or set MLX_DISABLE_COMPILE=1",
        )
    return ok("g++ compiles")


def blas(_: Installation, maps: Path = Path("/proc/self/maps")) -> Verdict | None:
    """On a Linux CPU, MLX's wheel brings the reference BLAS; another one can stand in for it."""
    if not maps.exists():
        return None
    import mlx.core  # noqa: F401  # loads its BLAS

    loaded = {
        Path(line.split()[-1]).name for line in maps.read_text().splitlines() if ".so" in line
    }
    if fast := sorted(name for name in loaded if FAST_BLAS.search(name)):
        return ok(f"{fast[0]} stands in for the reference BLAS")
    return warn(
        "MLX multiplies matrices with the reference BLAS, several times slower than OpenBLAS",
        "install OpenBLAS (Debian: apt install libopenblas0-pthread) and start thinkq with "
        "LD_PRELOAD=libopenblas.so.0",
    )


def model(site: Installation) -> Verdict:
    """The model of the settings: whether it is there, can be used, and fits."""
    entry = next(each for each in site.models if each.default)
    facts = entry.facts
    if facts.problem is not None:
        tell = warn if facts.supported or facts.architecture is None else fail
        return tell(f"{entry.name}: {facts.problem}", "`thinkq models` lists what can be used")
    weights = f"{entry.name}: {shown_bytes(facts.weights_bytes)} of weights"
    if entry.fits == "no":
        return fail(
            f"{weights} do not fit this machine's memory", "name a smaller or more quantised model"
        )
    if entry.fits == "tight":
        return warn(
            f"{weights} leave little memory for jobs", "name a smaller model, or lower max_batch"
        )
    return ok(f"{weights} fit; thinking budgets go by {facts.budget}")


def cache(site: Installation) -> Verdict:
    """The Hugging Face cache."""
    from huggingface_hub import constants

    others = [entry for entry in site.models if entry.name != "demo" and entry.path]
    broken = [entry for entry in others if "damaged" in (entry.facts.problem or "")]
    if broken:
        return warn(
            f"{broken[0].name}: {broken[0].facts.problem}", "`thinkq models` lists them all"
        )
    return ok(f"{counted(len(others), 'model')} beside demo; the cache is {constants.HF_HUB_CACHE}")


def disk(site: Installation) -> Verdict:
    """Room for results and Redis's file."""
    place = site.settings.home_path
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{shown_bytes(free)} free for {site.settings.home}"
    remedy = "make room; without it finished results wait and no new job is taken"
    if free < NO_DISK_BYTES:
        return fail(text, remedy)
    return warn(text, remedy) if free < LITTLE_DISK_BYTES else ok(text)


CHECKS: Final[dict[str, Check]] = {
    "python": python,
    "mlx": mlx,
    "compiler": compiler,
    "blas": blas,
    "model": model,
    "cache": cache,
    "disk": disk,
}
