"""Elements of a page. Text is escaped where the page is written, so nobody can forget to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree.ElementTree import Element, tostring

Child = Element | str | None

CONTROLS: Final = {
    code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\t\n"
}
"""Characters that a page cannot hold, or that nobody would see."""


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Element:
    """An element. `class_` is the attribute class, `text_anchor` text-anchor; None is left out."""
    named = {
        key.rstrip("_").replace("_", "-"): clean(str(value))
        for key, value in attributes.items()
        if value is not None
    }
    return add(Element(name, named), children)


def add(element: Element, children: Iterable[Child]) -> Element:
    """Append children to the element, which is returned; None is left out."""
    for child in children:
        if isinstance(child, str):
            _add_text(element, clean(child))
        elif child is not None:
            element.append(child)
    return element


def clean(text: str) -> str:
    """The text with a replacement character for each control character."""
    return text.translate(CONTROLS)


def written(root: Element) -> str:
    """The document."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _add_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
