"""Arguments that are none: one message, without the usage, which says what is meant or where the option belongs."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import pytest

from tests.commands import Run, run  # noqa: F401


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "d.zarr", "--one-hot", "auto"], "train: --one-hot is no option of train: it is one of ingest"),
        (["train", "d.zarr", "--kernell=rbf"], "train: --kernell is no option of train: is --kernel meant?"),
        (["train", "d.zarr", "--row-numbers"], "train: --row-numbers is no option of train: it is one of predict"),
        (["train", "d.zarr", "--overwritten"], "train: --overwritten is no option of train: is --overwrite meant?"),
        (["train", "d.zarr", "--zzz", "1"], "train: --zzz is no option of train"),
        (
            ["predict", "run", "a.csv", "b.csv", "--out", "p.csv"],
            "predict: 'b.csv' belongs to no option; several values",
        ),
        (["train", "d.zarr", "--C", "abc"], "train: argument --C: invalid float value: 'abc'"),
        (["predict", "run", "a.csv"], "predict: the following arguments are required: --out"),
    ],
)
def test_arguments_that_are_none(run: Run, arguments: list[str], message: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"streamsvm {message}")
    assert ran.err.endswith(f"; see `streamsvm {arguments[0]} --help`\n")
    assert ran.err.count("\n") == 1
