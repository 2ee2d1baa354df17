"""What holds of every page: its elements are nested as HTML wants it, it loads nothing, and it runs no script."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "hr"}
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "section", "div", "figure"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("svg", "g", "text", "path", "polyline", "circle", "rect"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "class", "scope", "style", "role", "aria-label"),
    *("viewbox", "x", "y", "d", "points", "cx", "cy", "r", "width", "height", "text-anchor", "transform"),
    "stroke-dasharray",
}


class Page(HTMLParser):
    """A parsed page: the names of its elements and attributes, and its text, piece by piece."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.cells: list[list[str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr":
            self.cells.append([])
        if tag in ("th", "td"):
            self.cells[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] in ("th", "td"):
            self.cells[-1][-1] += data


def check_page(page: str) -> Page:
    """Return the parsed page, whose structure is checked."""
    assert page.startswith("<!doctype html>")
    parsed = Page(page)
    assert parsed.open == []
    assert parsed.elements <= ELEMENTS, parsed.elements - ELEMENTS
    assert parsed.attributes <= ATTRIBUTES, parsed.attributes - ATTRIBUTES
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in page, "a browser would load what gets into the page all the same"
    return parsed
