"""Trace journeys through the package: python -m benchmarks.journeys

A journey is the sequence of calls that one call causes in the package. Every call from one file of `streamsvm` into
another is a move, and a move into a file that was visited before is a return. Calls in other threads count as well. The
table lists the pairs of files between which most moves occur.
"""

from __future__ import annotations

import io
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import streamsvm
from streamsvm import ingest
from streamsvm.cli.main import main
from streamsvm.data.open import open_dataset
from streamsvm.options import TrainOptions
from streamsvm.runs import train as training

ROOT = str(Path(streamsvm.__file__).parent) + "/"
SHOWN = 6  # pairs of files


class Journey:
    """The moves between files, and the visited files, of the calls within `watched`."""

    def __init__(self) -> None:
        self.moves, self.visited, self.returns, self.times = Counter[tuple[str, str]](), set[str](), 0, 0

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call: the hook of `sys.setprofile`."""
        if event != "call" or not (to := frame.f_code.co_filename).startswith(ROOT):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(ROOT):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != to:
            self.moves[caller.f_code.co_filename, to] += 1
            self.returns += to in self.visited
        self.visited.add(to)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count the calls within the block. Afterwards, the previously watched journey is watched again."""
        before = sys.getprofile()
        threading.setprofile(self._count)
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(before)
            self.times += 1

    def show(self, name: str) -> None:
        """Print a row of the table, with the pairs of files that have most moves.

        Numbers are means over repeated journeys.
        """
        moves, returns = sum(self.moves.values()) / self.times, self.returns / self.times
        print(f"| {name} | {len(self.visited)} | {moves:,.0f} | {returns:,.0f} |")
        for (start, end), count in self.moves.most_common(SHOWN):
            print(f"|   {count / self.times:,.0f} from {start[len(ROOT) :]} to {end[len(ROOT) :]} | | | |")


def trace(call: Callable[[], object]) -> Journey:
    """Return the journey of a call."""
    journey = Journey()
    with journey.watched(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        call()
    return journey


def write_rows(path: Path) -> None:
    """Write 2,000 rows with two features and two classes as CSV."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y = (X.sum(axis=1) + 0.3 * rng.normal(size=2000) > 0).astype(int)
    lines = [f"{row[0]!r},{row[1]!r},{label}" for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    path.write_text("a,b,label\n" + "\n".join(lines) + "\n")


def run(folder: Path) -> None:
    """Trace the journeys and print the table. Each journey is first run once without tracing."""
    rows, dataset, text = folder / "rows.csv", folder / "rows.zarr", ["--label", "label"]
    write_rows(rows)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main(["ingest", str(rows), str(dataset), *text])
        main(["train", str(dataset), "--out", str(folder / "first")])
    source, reads = open_dataset(dataset), Journey()
    answer_all = training.answer_all

    def answer_watched(*arguments: Any) -> Any:
        with reads.watched():
            return answer_all(*arguments)

    print("| journey | files | moves | returns |\n|---|---:|---:|---:|")
    trace(lambda: ingest(str(rows), folder / "second.zarr", label="label")).show("ingest() of a CSV file")
    trace(lambda: training.train(source, TrainOptions(), folder / "second")).show("train()")
    training.answer_all = answer_watched
    training.train(source, TrainOptions(solver="cutting-plane"))
    training.answer_all = answer_all
    reads.show("a pass")
    trace(lambda: main(["train", str(dataset), "--out", str(folder / "third")])).show("`streamsvm train`")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        run(Path(temporary))
