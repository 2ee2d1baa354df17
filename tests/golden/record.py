"""Record golden outputs, and compare those of this checkout with the recorded ones.

    python -m tests.golden.record                   compare all
    python -m tests.golden.record inputs runs       compare some
    python -m tests.golden.record runs --write      write some anew

The exit status is 1 if anything differs. A change that is meant is written anew in a commit of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamsvm.numeric.compilation import describe_arithmetic
from tests.golden import ingests, interface, refusals, runs
from tests.golden.inputs import write_bad, write_good
from tests.golden.processes import do

FOLDER = Path(__file__).parent
OF_MACHINE = {"sha256", "passes", "steps", "n_support_vectors"}  # what other processors and libraries change
TOLERANCE = 1e-3  # the default of a training
RECORDS: dict[str, tuple[str, ...]] = {
    "interface": ("options", "signatures"),
    "inputs": ("refusals", "ingests"),
    "runs": ("runs", "verifications", "projections"),
}


def record(names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the outputs of this checkout by their names; those of one group are found together."""
    groups = names or list(RECORDS)
    if "interface" in groups:
        yield "options", interface.record_options()
        yield "signatures", interface.record_signatures()
    if "inputs" in groups:
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder))
            yield "refusals", refusals.record(Path(folder))
            yield "ingests", ingests.record(Path(folder))
    if "runs" in groups:
        with tempfile.TemporaryDirectory() as folder:
            yield "runs", runs.record_runs(Path(folder))
            yield "verifications", runs.record_verifications(Path(folder))
            yield "projections", runs.record_projections(Path(folder))


def prepare(folder: Path) -> None:
    """Write the inputs, ingest some, and train a model."""
    write_good(folder)
    write_bad(folder)
    do(folder, "ingest", "dense.svm", "rows.zarr")
    do(folder, "ingest", "numbers.svm", "numbers.zarr", "--regression")
    do(folder, "ingest", "queries.svm", "queries.zarr")
    do(folder, "train", "rows.zarr", "--out", "run")


def load(name: str) -> dict[str, Any]:
    """Return what was recorded."""
    recorded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return recorded


def agree(was: Any, now: Any, is_same_machine: bool) -> bool:
    """Return whether two outputs are the same; on another machine their numbers are within the tolerance of the runs.

    Processors and libraries round differently, and iterations go their ways from the first different bit on.
    """
    if is_same_machine or was == now:
        return bool(was == now)
    pairs = [(was[name], now.get(name)) for name in was]
    return all(a == b or (a and b and math.isclose(float(a), float(b), rel_tol=TOLERANCE)) for a, b in pairs)


def list_differences(name: str, found: dict[str, Any]) -> list[str]:
    """Return what differs from the recorded output."""
    recorded, found = load(name), json.loads(json.dumps(found))
    is_same_machine = recorded.pop("arithmetic", None) in (None, describe_arithmetic())
    differences = []
    for key in sorted({*recorded, *found}):
        was, now = (each.get(key, {}) for each in (recorded, found))
        differences += [
            f"{name}: {key}: {part}: was {was.get(part)!r}, is {now.get(part)!r}"
            for part in sorted({*was, *now} - (set() if is_same_machine else OF_MACHINE))
            if not agree(was.get(part), now.get(part), is_same_machine or part != "numbers")
        ]
    return differences


def write(name: str, found: dict[str, Any]) -> None:
    """Write an output as JSON, an entry a line."""
    has_bits = any("sha256" in each for each in found.values())
    found = {"arithmetic": describe_arithmetic(), **found} if has_bits else found
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items()]
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> int:
    """Record, and compare or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECORDS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    differences = list[str]()
    for name, found in record(options.names):
        if options.write:
            write(name, found)
        else:
            differences += list_differences(name, found)
        print(f"{name}: {len(found)}", flush=True)
    print("\n".join(differences))
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
