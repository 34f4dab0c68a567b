"""What it costs to start: `import thinkq.client` and `thinkq --help`, against their libraries.

    python benchmarks/imports.py [--repeats N]

Each round starts every command once, in turn, in a fresh interpreter.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median
from typing import Final

import click

REFERENCE: Final = "import redis, rq, msgspec, click"
COMMANDS: Final = {
    REFERENCE: ("-c", REFERENCE),
    "import thinkq.client": ("-c", "import thinkq.client"),
    "from thinkq.client import Client": ("-c", "from thinkq.client import Client"),
    "thinkq --help": ("-m", "thinkq.client", "--help"),
}


@click.command()
@click.option("--repeats", default=21, show_default=True, help="Rounds.")
def main(repeats: int) -> None:
    """Print the median of each command, and the median ratio to the reference in its round."""
    rounds = [
        {name: _seconds(command) for name, command in COMMANDS.items()} for _ in range(repeats)
    ]
    for name in COMMANDS:
        milliseconds = 1000 * median(one[name] for one in rounds)
        ratio = median(one[name] / one[REFERENCE] for one in rounds)
        click.echo(f"{name:36} {milliseconds:6.0f} ms  {ratio:.2f}")


def _seconds(command: tuple[str, ...]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
