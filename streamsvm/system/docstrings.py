"""Reading and writing numpydoc sections. The command line's help and the estimators' docstrings are made from them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


class Entry(NamedTuple):
    """An entry of a section: `name : kind`, and the indented text below it."""

    kind: str
    text: str


class Documented:
    """A class whose subclasses inherit the entries of its docstring. _summary: the text above the first section."""

    _summary: ClassVar[str]
    _documented: ClassVar[dict[str, dict[str, Entry]]] = {}
    _sections: ClassVar[tuple[str, ...]] = ("Parameters", "Attributes")  # those with entries

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        sections = split_sections(cls.__doc__)
        cls._summary = sections[""]
        cls._documented = {title: read_entries(sections.get(title, "")) for title in cls._sections}

    @classmethod
    def _list_entries(cls, title: str) -> dict[str, Entry]:
        """Return the entries of a section: the entries of the class, then further entries of its base classes."""
        found = dict[str, Entry]()
        for base in cls.__mro__:
            for name, entry in vars(base).get("_documented", {}).get(title, {}).items():
                found.setdefault(name, entry)
        return found


def split_sections(docstring: str | None) -> dict[str, str]:
    """Return the text of each section by its title. The text before the first section has the title ""."""
    summary, *rest = SECTION.split(inspect.cleandoc(docstring or ""))
    return {"": summary, **dict(zip(rest[0::2], rest[1::2], strict=True))}


def read_entries(section: str) -> dict[str, Entry]:
    """Return the entries of a section by name. Names that share an entry, `a, b : kind`, share its text."""
    found = dict[str, Entry]()
    for entry in re.split(r"^(?=\S)", section, flags=re.MULTILINE)[1:]:
        head, _, text = entry.partition("\n")
        names, _, kind = head.partition(" : ")
        found |= dict.fromkeys(names.split(", "), Entry(kind, text.rstrip()))
    return found


def write_entries(entries: Mapping[str, Entry]) -> str:
    """Return the text of a section. Consecutive entries with the same text are written as one entry."""
    lines = []
    for entry, names in groupby(entries, key=lambda name: entries[name]):
        lines.append(", ".join(names) + (f" : {entry.kind}" if entry.kind else "") + "\n")
        lines.append(f"{entry.text}\n" if entry.text else "")
    return "".join(lines)


def join_sections(sections: Mapping[str, str]) -> str:
    """Return a docstring with these sections. Sections without text are left out."""
    titled = {title: f"{title}\n{'-' * len(title)}\n" if title else "" for title in sections}
    return "\n\n".join(titled[title] + text.strip("\n") for title, text in sections.items() if text.strip()) + "\n"
