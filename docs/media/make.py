"""Makes the pictures of this folder anew, from real runs of the demo model.

    pip install pyte && python docs/media/make.py

Needs chromium on the PATH for the picture of the report.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

from thinkq.worker.demo import evaluation

FOLDER = Path(__file__).parent
COLUMNS, ROWS = 100, 24
SWITCHES = ("bold", "italics", "underscore", "reverse")


class Screen(pyte.Screen):
    """A terminal that also knows dim text, which it marks as italic."""

    def select_graphic_rendition(self, *attributes: int, **private: bool) -> None:
        super().select_graphic_rendition(*(3 if code == 2 else code for code in attributes))


def terminal(arguments: list[str], environ: dict[str, str], frame: int | None = None) -> Screen:
    """The terminal at the end of a command, or when it has been drawn so often."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execvpe(arguments[0], arguments, environ)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    drawn = 0
    while frame is None or drawn < frame:
        try:
            data = os.read(descriptor, 65536)
        except OSError:
            break
        stream.feed(data)
        drawn += data.count(b"\x1b[1A")
    os.close(descriptor)
    return screen


def svg(screen: Screen, title: str) -> str:
    """A picture of the terminal, without fonts from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)
    lines = range(max((y for y, line in screen.buffer.items() if _text(line)), default=0) + 1)
    for y in lines:
        text = Text()
        for x in range(COLUMNS):
            cell = screen.buffer[y][x]
            color = None if cell.fg == "default" else cell.fg
            color = f"#{color}" if color and re.fullmatch("[0-9a-f]{6}", color) else color
            text.append(cell.data, Style(color=color, bold=cell.bold, dim=cell.italics))
        text.rstrip()
        console.print(text, soft_wrap=True)
    return re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=title), flags=re.S)


def _text(line: dict[int, pyte.screens.Char]) -> str:
    return "".join(cell.data for cell in line.values()).strip()


def jobs(path: Path) -> None:
    """Sums that the model can do, mixed with sums that it cannot."""
    lines = []
    for number, (job, _) in enumerate([*evaluation("easy")[:90], *evaluation("hard")[:40]]):
        fields: dict[str, object] = {
            "custom_id": f"sum-{number:03d}",
            "messages": [{"role": "user", "content": job.messages[0].content}],
            "max_tokens": 700,
            "temperature": 0.7,
        }
        if number >= 90 and number % 2:
            fields["thinking_token_budget"] = 128
        lines.append(json.dumps(fields) + "\n")
    random.Random(7).shuffle(lines)
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Run, watch, report."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        bin = Path(sys.executable).parent
        environ = os.environ | {"THINKQ_HOME": f"{folder}/home", "TERM": "xterm-256color"}
        environ["PATH"] = f"{bin}:{environ['PATH']}"
        jobs(Path("sums.jsonl"))
        subprocess.run(["thinkq", "daemon", "start", "--wait"], env=environ, check=True)
        try:
            screen = terminal(["thinkq", "run", "sums.jsonl"], environ)
            (FOLDER / "run.svg").write_text(svg(screen, "thinkq run sums.jsonl"))
            again = ["thinkq", "submit", "sums.jsonl", "--again"]
            batch = subprocess.check_output(again, env=environ, text=True).strip()
            screen = terminal(["thinkq", "watch", batch], environ, frame=150)
            (FOLDER / "watch.svg").write_text(svg(screen, f"thinkq watch {batch}"))
            subprocess.run(["thinkq", "watch", batch], env=environ, stderr=subprocess.DEVNULL)
            subprocess.run(
                ["thinkq", "report", batch, "-o", "report.html"], env=environ, check=True
            )
            picture = f"--screenshot={FOLDER / 'report.png'}"
            size = "--window-size=960,1180"
            headless = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars"]
            subprocess.run([*headless, picture, size, "report.html"], check=True)
        finally:
            subprocess.run(["thinkq", "daemon", "stop"], env=environ, check=True)


if __name__ == "__main__":
    main()
