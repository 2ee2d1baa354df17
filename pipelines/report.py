"""Markdown tables, and the report that a story prints while it runs."""

from __future__ import annotations


def format_row(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def format_head(*heads: str) -> str:
    """Return the first two lines of a Markdown table, with the names of the columns."""
    return f"{format_row(*heads)}\n{'|---' * len(heads)}|"


class Report:
    """A report in Markdown. All text is printed at once, and also stored.

    Attributes
    ----------
    text : str
        All text written so far.
    """

    def __init__(self) -> None:
        self.text = ""

    def write(self, lines: str) -> None:
        """Print and store one or more lines."""
        self.text += lines + "\n"
        print(lines, flush=True)

    def begin_table(self, title: str, *heads: str) -> None:
        """Write a title, which may be empty, and below it the head of a table."""
        if title:
            self.write(f"\n{title}\n")
        self.write(format_head(*heads))

    def add_row(self, *cells: str) -> None:
        """Write a row of the current table."""
        self.write(format_row(*cells))
