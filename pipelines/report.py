"""The writer of Markdown tables, and the report that a story prints while it runs."""

from __future__ import annotations


def format_row(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def format_head(*heads: str) -> str:
    """Return the head of a Markdown table: its first two lines."""
    return f"{format_row(*heads)}\n{'|---' * len(heads)}|"


class Report:
    """Markdown that is printed as it is written, and kept.

    Attributes
    ----------
    text : str
        All text written so far.
    """

    def __init__(self) -> None:
        self.text = ""

    def write(self, lines: str) -> None:
        """Print and keep one or more lines."""
        self.text += lines + "\n"
        print(lines, flush=True)

    def begin_table(self, title: str, *heads: str) -> None:
        """Write the head of a table below its title, which may be empty."""
        if title:
            self.write(f"\n{title}\n")
        self.write(format_head(*heads))

    def add_row(self, *cells: str) -> None:
        """Write a row of the table that was begun last."""
        self.write(format_row(*cells))
