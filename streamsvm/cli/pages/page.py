"""A page of sections with notes, charts and tables. Jinja puts them into page.html, and escapes texts from data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from streamsvm import __version__
from streamsvm.cli.info import show_text

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first text of a row names it.

    head: names of the columns, the first one of which is above the names of the rows; none for a list of facts. shades:
    for each cell but the names, how strongly it is shaded, from 0 to 1; none for no shades. is_text: whether the cells
    are texts, which begin at the left and may have several lines; numbers end at the right.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    caption: str = ""
    shades: Sequence[Sequence[float]] = ()
    is_text: bool = False

    @property
    def kind(self) -> str:
        """The class of the table in the page's style."""
        return "facts" if not self.head else "texts" if self.is_text else "numbers"


@dataclass(frozen=True)
class Section:
    """A part of a page: a title, paragraphs, charts as SVG text, and tables."""

    title: str
    notes: Sequence[str] = ()
    charts: Sequence[str] = ()
    tables: Sequence[Table] = field(default=())


def render_page(title: str, sections: Sequence[Section], refresh_seconds: int | None = None) -> str:
    """Return the page as HTML. refresh_seconds: after how many seconds a browser is to load it anew, if at all."""
    shown = [
        Section(section.title, section.notes, [Markup(chart) for chart in section.charts], section.tables)  # noqa: S704
        for section in sections
        if section.notes or section.charts or section.tables
    ]
    style = Markup((FOLDER / "style.css").read_text(encoding="utf-8"))  # noqa: S704
    environment = Environment(
        loader=FileSystemLoader(FOLDER, encoding="utf-8"), autoescape=True, undefined=StrictUndefined, finalize=_show
    )
    return environment.get_template("page.html").render(
        title=title, sections=shown, style=style, refresh_seconds=refresh_seconds, version=__version__
    )


def _show(value: object) -> object:
    """Return what is put into the page: charts and style as they are, and any other text without control characters."""
    return value if isinstance(value, Markup) else show_text(str(value))
