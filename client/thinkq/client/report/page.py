"""The page: its sections in the order in which they are read."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from importlib.resources import files
from xml.etree.ElementTree import Element

from thinkq.client.render import duration
from thinkq.client.report import jobs, sections
from thinkq.client.report.gather import Report
from thinkq.client.report.markup import Child, tag, written


def page(report: Report) -> str:
    """The whole document."""
    status = report.status
    title = f"{status.name or status.batch} · thinkq report"
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    return written(
        tag(
            "html",
            tag(
                "head",
                tag("meta", charset="utf-8"),
                tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
                tag("meta", name="color-scheme", content="light dark"),
                tag("title", title),
                tag("style", style),
            ),
            tag("body", tag("main", *_parts(report), _foot())),
            lang="en",
        )
    )


def _parts(report: Report) -> list[Element]:
    parts = [_head(report), sections.outcomes(report)]
    if report.ended:
        told = (sections.thinking, sections.speed, jobs.unanswered, sections.errors, jobs.slowest)
        parts += [part for section in told if (part := section(report)) is not None]
    return parts


def _head(report: Report) -> Element:
    status = report.status
    finished = status.finished and report.ended >= status.total
    rows = {
        "batch": status.batch,
        "submitted": _when(status.created),
        "model": _names(report.models),
        "worker" if len(report.workers) < 2 else "workers": _names(report.workers),
        "tokens": f"{report.tally['thinking_tokens']:,} thinking, "
        f"{report.tally['answer_tokens']:,} answer",
        "time": _took(report),
    }
    return tag(
        "header",
        tag("p", "thinkq report", class_="kicker"),
        tag("h1", status.name or status.batch),
        tag("p", *_headline(report), class_="headline"),
        None if finished else tag("p", _so_far(report), class_="sofar"),
        tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in rows.items() if v)),
    )


def _headline(report: Report) -> list[Child]:
    """The one sentence of the page."""
    total = report.status.total
    if not total:
        return ["The batch has no jobs."]
    return [
        tag("strong", f"{report.answered:,} of {total:,}"),
        " jobs answered" if total != 1 else " job answered",
    ]


def _so_far(report: Report) -> str:
    ended, total = report.ended, report.status.total
    if report.status.finished:
        return f"The results of {total - ended:,} of {total:,} jobs are not kept any more."
    return f"So far: {ended:,} of {total:,} jobs have ended. Make the report again for the rest."


def _took(report: Report) -> str:
    if not report.rate.end_ms:
        return ""
    seconds = (report.rate.end_ms - report.rate.start_ms) / 1000
    return (
        f"{duration(seconds)} from the first token to the last, "
        f"{report.completion_tokens / seconds:,.1f} tokens/s"
    )


def _names(counted: Counter[str], most: int = 3) -> str:
    """The names of most jobs, and how many others there are."""
    names = [name for name, _ in counted.most_common(most)]
    others = len(counted) - len(names)
    return ", ".join(names) + (f" and {others:,} others" if others else "")


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M %Z")


def _foot() -> Element:
    return tag("footer", tag("p", f"Made by thinkq on {_when(time.time())}."))
