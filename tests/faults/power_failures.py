"""A disk that is watched, and what a power failure could leave of it at each moment.

Between any two calls of fsync, rename, unlink and mkdir a picture is taken of all names and contents, and of those that
are certain to be on the disk: the contents of a file as of its last fsync, the names in a folder as of the folder's.
A failure keeps what is certain, and of the rest whatever it likes.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest

Names = dict[str, tuple[str, int]]  # in a folder: file or folder, and which one
Tree = dict[str, bytes | None]  # contents by path; None: a folder
CALLS = ("fsync", "replace", "unlink", "mkdir", "rmdir")
MOST_SUBSETS = 4


@dataclass(frozen=True)
class Picture:
    """All that is there at a moment, and what of it is certain; note: what the watched process had done by then."""

    root: int
    names: dict[int, Names]
    contents: dict[int, bytes]
    certain_names: dict[int, Names]
    certain_contents: dict[int, bytes]
    note: Any


class WatchedDisk:
    """The files and folders below a root, while `watch` is entered."""

    def __init__(self, root: Path, aside: Path, note: Callable[[], Any] = lambda: None) -> None:
        self.root, self.aside, self.note = root, aside, note
        aside.mkdir()
        self.pictures: list[Picture] = []
        self._certain_names: dict[int, Names] = {}
        self._certain_contents: dict[int, bytes] = {}
        self._held: list[int] = []
        _, names, contents = self._look()
        self._certain_names.update(names)  # what was there before is certain
        self._certain_contents.update(contents)

    @contextmanager
    def watch(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Take pictures."""
        calls = {name: getattr(os, name) for name in CALLS}
        inside, one_thread = threading.local(), threading.Lock()

        def watched(name: str, *given: Any, **named: Any) -> Any:
            if getattr(inside, "busy", False):
                return calls[name](*given, **named)
            with one_thread:  # chunks are written by several threads
                inside.busy = True
                try:
                    self._take_picture()
                    done = calls[name](*given, **named)
                    if name == "fsync":
                        self._note_sync(given[0])
                    return done
                finally:
                    inside.busy = False

        for name in CALLS:
            patch.setattr(os, name, lambda *given, _name=name, **named: watched(_name, *given, **named))
        try:
            yield
        finally:
            patch.undo()
            self._take_picture()
            for descriptor in self._held:
                os.close(descriptor)

    def _take_picture(self) -> None:
        root, names, contents = self._look()
        certain = dict(self._certain_names), dict(self._certain_contents)
        self.pictures.append(Picture(root, names, contents, *certain, self.note()))

    def _look(self) -> tuple[int, dict[int, Names], dict[int, bytes]]:
        names: dict[int, Names] = {}
        contents: dict[int, bytes] = {}

        def visit(folder: Path) -> int:
            number = folder.stat().st_ino
            mine: Names = {}
            self._hold(folder, number)
            for entry in sorted(folder.iterdir()):
                about = entry.lstat()
                if stat.S_ISDIR(about.st_mode):
                    mine[entry.name] = ("folder", visit(entry))
                else:
                    self._hold(entry, about.st_ino)
                    mine[entry.name], contents[about.st_ino] = ("file", about.st_ino), entry.read_bytes()
            names[number] = mine
            return number

        root = visit(self.root)
        for link in self.aside.iterdir():  # files that have no name any more may still have a certain one
            contents.setdefault(int(link.name), link.read_bytes())
        return root, names, contents

    def _hold(self, path: Path, number: int) -> None:
        """Keep a file or folder from being freed: its number would be given to another."""
        link = self.aside / str(number)
        if path.is_dir():
            if number not in self._certain_names:
                self._held.append(os.open(path, os.O_RDONLY))
                self._certain_names[number] = {}
        elif not link.exists():
            os.link(path, link)

    def _note_sync(self, descriptor: int) -> None:
        number = os.fstat(descriptor).st_ino
        _, names, contents = self._look()
        if number in names:
            self._certain_names[number] = names[number]
        elif number in contents:
            self._certain_contents[number] = contents[number]


def imagine(picture: Picture) -> Iterator[Tree]:
    """What may be left: any of the names that are not certain, with contents whole, torn or lost."""
    certain, contents = picture.certain_contents, picture.contents
    lost = {number: certain.get(number, b"") for number in contents}
    torn = {
        number: content[: (len(content) + len(lost[number])) // 2] if content != lost[number] else content
        for number, content in contents.items()
    }
    for names in _imagine_names(picture):
        for kept in (contents, torn, lost):
            tree: Tree = {}
            _plant(tree, "", picture.root, names, kept)
            yield tree


def _imagine_names(picture: Picture) -> Iterator[dict[int, Names]]:
    """The names that are certain, with each subset of the changes since (all or none, if there are many)."""
    changes = _group_changes(picture)
    sizes = range(len(changes) + 1) if len(changes) <= MOST_SUBSETS else (0, len(changes))
    for chosen in chain.from_iterable(combinations(changes, size) for size in sizes):
        made = {change for group in chosen for change in group}
        yield {
            number: {
                name: entry
                for name in {*picture.names.get(number, {}), *before}
                if (entry := (picture.names.get(number, {}) if (number, name) in made else before).get(name))
            }
            for number, before in picture.certain_names.items()
        }


def _group_changes(picture: Picture) -> list[set[tuple[int, str]]]:
    """Changed names (folder and name); both ends of a rename change at once, as all file systems of today see to."""
    groups: list[tuple[set[int], set[tuple[int, str]]]] = []
    for number, names in picture.names.items():
        before = picture.certain_names[number]
        for name in sorted({*names, *before}):
            if names.get(name) != before.get(name):
                meant = {entry[1] for entry in (names.get(name), before.get(name)) if entry}
                together = [group for group in groups if group[0] & meant]
                groups = [group for group in groups if group not in together]
                groups.append(
                    (
                        meant.union(*(each for each, _ in together)),
                        {(number, name)}.union(*(changes for _, changes in together)),
                    )
                )
    return [changes for _, changes in groups]


def _plant(tree: Tree, path: str, folder: int, names: dict[int, Names], contents: dict[int, bytes]) -> None:
    for name, (kind, number) in names.get(folder, {}).items():
        tree[path + name] = None if kind == "folder" else contents.get(number, b"")
        if kind == "folder":
            _plant(tree, f"{path}{name}/", number, names, contents)


def lay_out(tree: Tree, root: Path) -> None:
    """Make the files and folders of a tree."""
    root.mkdir()
    for path, content in sorted(tree.items()):
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)


def distinct(pictures: list[Picture]) -> Iterator[tuple[Tree, Any]]:
    """Every tree that may be left at some moment, once, with the least that was done by then."""
    seen: dict[frozenset[tuple[str, bytes | None]], tuple[Tree, Any]] = {}
    for picture in pictures:
        for tree in imagine(picture):
            seen[frozenset(tree.items())] = (tree, picture.note)
    yield from seen.values()
