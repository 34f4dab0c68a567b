"""The lists of single jobs. What a job thought is folded, and open on paper."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from thinkq.client.render import duration
from thinkq.client.report.gather import JobNote, Report
from thinkq.client.report.markup import Child, tag


def unanswered(report: Report) -> Element | None:
    """Jobs that failed, were cancelled or came back empty, in input order."""
    return _list("Jobs without an answer", report.unanswered.items(), report.unanswered.seen)


def slowest(report: Report) -> Element | None:
    """Jobs that took the longest to decode."""
    notes = [note for note in report.slowest.items() if note.seconds]
    return _list("Slowest jobs", notes, len(notes))


def _list(title: str, notes: list[JobNote], number: int) -> Element | None:
    if not notes:
        return None
    names = ("job", "outcome", "thinking", "answer", "tokens/s", "time")
    heads = tag("div", *(tag("span", name) for name in names), class_="job heads")
    more = f"The first {len(notes)} of {number:,}." if number > len(notes) else None
    return tag(
        "section",
        tag("h2", title),
        tag("p", more, class_="note") if more else None,
        tag("div", heads, *map(_job, notes), class_="jobs"),
    )


def _job(note: JobNote) -> Element:
    result, usage = note.result, note.result.usage
    outcome, meaning = _outcome(note)
    rate = usage.completion_tokens / result.timing.decode_s if result.timing.decode_s else 0
    summary = tag(
        "summary",
        tag("b", result.custom_id or result.job_id, title=f"line {note.line}, {result.job_id}"),
        tag("span", tag("i", class_=meaning), outcome),
        tag("span", f"{usage.thinking_tokens:,}", data_name="thinking"),
        tag("span", f"{usage.answer_tokens:,}", data_name="answer"),
        tag("span", f"{rate:,.1f}" if rate else "", data_name="tokens/s"),
        tag("span", duration(note.seconds)),
        class_="job",
    )
    return tag("details", summary, *_texts(note))


def _outcome(note: JobNote) -> tuple[str, str]:
    """How a job ended, in a word or two, and the meaning of its colour."""
    result = note.result
    if result.status != "done":
        return result.status, result.status
    if result.empty:
        return "empty", "empty"
    if result.finish_reason in ("length", "timeout"):
        return f"cut: {result.finish_reason}", "answered"
    return "answered", "answered"


def _texts(note: JobNote) -> list[Child]:
    result = note.result
    about = [f"Line {note.line}, {result.job_id}"]
    if result.close_reason != "none":
        about.append(f"thinking closed: {result.close_reason}")
    if result.budget.enforced is not None:
        about.append(f"budget {result.budget.enforced:,}")
    about += result.warnings
    texts = {
        "Error": f"{result.error.kind}: {result.error.message}" if result.error else "",
        "Thinking": result.thinking,
        "Answer": result.answer,
    }
    parts: list[Child] = [tag("p", " · ".join(about), class_="note")]
    for name, text in texts.items():
        if text:
            parts += [tag("h4", name), tag("pre", text)]
    if not result.thinking:
        parts.append(tag("p", "No thinking was stored.", class_="note"))
    return parts
