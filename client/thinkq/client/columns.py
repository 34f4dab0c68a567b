"""What commands that print a table share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def columns(rows: Sequence[Sequence[str]], gap: str = "  ") -> Iterator[str]:
    """Each row as one line. All rows have as many cells; no line ends with blanks."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        line = gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield line.rstrip()


def shown_bytes(number: int) -> str:
    """Bytes for people, in powers of ten as disks count them."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"
