"""Sections of docstrings are read, and written as they were read."""

from __future__ import annotations

from streamsvm.system.docstrings import Entry, join_sections, read_entries, split_sections, write_entries

DOCSTRING = """The first line.

    P(w) = 1/2 |w|^2

Parameters
----------
a : int
    The first one.

    A paragraph of it.
b, c : float, default=1.0
    Two that share a text.
d

Examples
--------
>>> 1 + 1
2
"""


def test_a_docstring_is_written_as_it_was_read() -> None:
    sections = split_sections(DOCSTRING)
    entries = read_entries(sections["Parameters"])
    assert entries["a"] == Entry("int", "    The first one.\n\n    A paragraph of it.")
    assert entries["b"] == entries["c"] == Entry("float, default=1.0", "    Two that share a text.")
    assert entries["d"] == Entry("", "")
    assert join_sections({**sections, "Parameters": write_entries(entries)}) == DOCSTRING


def test_a_class_without_a_docstring_has_no_sections() -> None:
    """As under `python -OO`."""
    assert split_sections(None) == {"": ""}
    assert read_entries("") == {}
