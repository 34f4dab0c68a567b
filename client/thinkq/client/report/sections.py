"""The sections of the page. One that has nothing to tell is None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from thinkq.client.render import CLOSES
from thinkq.client.report import charts
from thinkq.client.report.aggregates import EDGES, range_of
from thinkq.client.report.charts import Bar, Mark
from thinkq.client.report.gather import Report
from thinkq.client.report.markup import Child, tag

GROUPS: Final = {
    "natural": "closed by the model itself",
    "budget": "closed by the budget",
    "loop": "closed by the loop guard",
    "other": "closed otherwise",
}
"""How thoughts are told apart in the histogram."""

LINES: Final = 3
"""Budgets that get a line in the histogram: those of the most jobs."""

STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(86_400, 172_800, 604_800, 2_592_000),
)
"""Distances of the labels of a time axis."""

MEANINGS: Final = {
    "natural": "the model ended it",
    "budget": "the thinking budget was spent",
    "loop": "it repeated itself",
    "eos": "the model wanted to end without an answer",
    "deadline": "the job's timeout had passed",
    "tool": "the model called a tool",
    "length": "max_tokens was spent",
    "none": "there was no thinking",
}


def outcomes(report: Report) -> Element:
    """How many jobs came back with what."""
    tally = report.tally
    parts = [
        ("answered", report.answered, "answered"),
        ("empty", tally["empty"], "empty"),
        ("failed", tally["failed"], "failed"),
        ("cancelled", tally["cancelled"], "cancelled"),
        ("waiting", report.status.total - report.ended, "not ended yet"),
    ]
    shown = [part for part in parts if part[1] or part[0] != "waiting"]
    cut = tally["length"]
    return _section(
        "Outcomes",
        charts.strip(shown, label="The jobs by outcome; the table below has the numbers."),
        _counts(shown, report.status.total, {"empty": "done, but the answer is empty"}),
        tag("p", f"{_jobs(cut)} cut by max_tokens.", class_="note") if cut else None,
    )


def thinking(report: Report) -> Element:
    """How the thinking was closed, and how long it was against the budget."""
    closes = [
        (_group(reason), report.tally[f"close:{reason}"], reason)
        for reason in (*CLOSES, "none")
        if report.tally[f"close:{reason}"]
    ]
    parts: list[Child] = [_counts(closes, report.ended, MEANINGS)]
    if report.thoughts:
        parts += [tag("h3", "Thinking tokens against the budget"), *_histogram(report)]
    return _section("How the thinking ended", *parts)


def speed(report: Report) -> Element | None:
    """Tokens per second over time."""
    rates = report.rate.per_second()
    if not rates:
        return None
    slot_s = report.rate.slot_ms / 1000
    columns = [
        Bar([("rate", rate)], f"{_clock(n * slot_s)}: {rate:,.1f} tokens/s")
        for n, rate in enumerate(rates)
    ]
    span = len(rates) * slot_s
    step = next((step for step in STEPS_S if span / step <= 8), STEPS_S[-1])
    labels = [
        Mark(n * step / slot_s, _clock(n * step), minor=n % 2 == 1)
        for n in range(int(span / step) + 1)
    ]
    running = report.ended < report.status.total
    return _section(
        "Tokens per second",
        _figure(
            charts.bars(columns, labels, label="Tokens per second over time.", gap=0),
            "tokens/s, all jobs together",
            "time since the first token",
            f"Each bar is the mean of {_clock(slot_s)}. "
            "A job's tokens are spread evenly over the time that it was decoded in."
            + (" Jobs that still run are not counted yet." if running else ""),
        ),
    )


def errors(report: Report) -> Element | None:
    """What went wrong, by kind."""
    if not report.errors:
        return None
    rows = [
        tag(
            "tr",
            tag("th", kind, scope="row"),
            tag("td", message or "other messages of this kind"),
            tag("td", f"{count:,}", class_="number"),
        )
        for kind, messages in sorted(report.errors.items(), key=lambda item: -item[1].total())
        for message, count in messages.most_common()
    ]
    head = tag("tr", tag("th", "kind"), tag("th", "message"), tag("th", "jobs", class_="number"))
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="errors")
    return _section("Errors", table)


def _histogram(report: Report) -> Iterable[Element]:
    used = [n for _, n in report.thoughts]
    marked = [budget for budget, _ in report.budgets.most_common(LINES)]
    low, high = min(used), max(*used, *map(range_of, marked), min(used) + 3)
    low = max(0, low - low % 4)  # from a full doubling
    columns = [_thought_bar(report, n) for n in range(low, high + 1)]
    labels = [
        Mark(n + 1 - low, f"{EDGES[n]:,}", minor=n % 8 != 4)
        for n in range(low, high + 1)
        if n < 4 or n % 4 == 0
    ]
    lines = [Mark(range_of(budget) + 1 - low, f"budget {budget:,}") for budget in marked]
    return [
        _figure(
            charts.bars(columns, labels, lines, label=_histogram_label(report)),
            "jobs",
            "thinking tokens, four bars to a doubling",
            _budget_note(report),
            _key(report),
        )
    ]


def _group(reason: str) -> str:
    return reason if reason in GROUPS else "other"


def _key(report: Report) -> Element:
    """What the colours of the histogram mean."""
    there = {_group(reason) for reason, _ in report.thoughts} | {"natural", "budget"}
    rows = [tag("li", tag("i", class_=g), name) for g, name in GROUPS.items() if g in there]
    return tag("ul", *rows, class_="key")


def _thought_bar(report: Report, n: int) -> Bar:
    counted = dict.fromkeys(GROUPS, 0)
    for (reason, place), jobs in report.thoughts.items():
        if place == n:
            counted[_group(reason)] += jobs
    above = EDGES[n - 1] + 1 if n else 0
    span = f"{above:,}" if above == EDGES[n] else f"{above:,} to {EDGES[n]:,}"
    told = ", ".join(f"{jobs:,} {GROUPS[group]}" for group, jobs in counted.items() if jobs)
    return Bar(list(counted.items()), f"{span} tokens: {told or 'no job'}")


def _histogram_label(report: Report) -> str:
    thought, budget = report.thoughts.total(), report.tally["close:budget"]
    return f"Histogram of the thinking tokens of {_jobs(thought)}, {budget:,} closed by the budget."


def _budget_note(report: Report) -> str:
    others = len(report.budgets) - LINES
    if others < 1:
        return ""
    return f"The lines are the {LINES} most common budgets; there are {others:,} others."


def _counts(parts: Sequence[tuple[str, int, str]], whole: int, notes: Mapping[str, str]) -> Element:
    """A table of counts, each with its colour and its part of the whole."""
    rows = [
        tag(
            "tr",
            tag("th", tag("i", class_=meaning), name, scope="row"),
            tag("td", f"{count:,}", class_="number"),
            tag("td", f"{count / whole:.1%}" if whole else "", class_="number share"),
            tag("td", notes.get(name, ""), class_="about"),
        )
        for meaning, count, name in parts
    ]
    return tag("table", tag("tbody", *rows), class_="counts")


def _figure(drawing: Element, up: str, across: str, note: str, *head: Child) -> Element:
    """A chart with the names of its axes."""
    return tag(
        "figure",
        *head,
        tag("p", up, class_="unit"),
        drawing,
        tag("p", across, class_="unit across"),
        tag("figcaption", note) if note else None,
    )


def _section(title: str, *children: Child) -> Element:
    return tag("section", tag("h2", title), *children)


def _jobs(count: int) -> str:
    return f"{count:,} job" if count == 1 else f"{count:,} jobs"


def _clock(seconds: float) -> str:
    """A time since the start, on an axis."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"
