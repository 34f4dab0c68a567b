"""Elements of a page. Text is escaped where the page is written, so nobody can forget to."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

from thinkq.client.render import clean

Child = Element | str | None


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


def written(root: Element) -> str:
    """The document."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _add_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
