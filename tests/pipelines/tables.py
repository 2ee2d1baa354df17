"""The Markdown tables that stories print, read back."""

from __future__ import annotations


def read_tables(text: str) -> list[list[list[str]]]:
    """Cells of each Markdown table, without its first two rows."""
    tables: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif tables[-1]:
            tables.append([])
    return [table[2:] for table in tables if table]
