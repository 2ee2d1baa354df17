"""An option that would have no effect is refused with exit status 2: option, reason and remedy are named."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from streamsvm.kernels.names import PARAMETERS
from streamsvm.problems.registry import PROBLEMS, SPARSE, name_task
from streamsvm.solvers.registry import SOLVERS
from tests.commands import Run, data, run, text, trained  # noqa: F401

SMO, IPM, SGD = (("--solver", name) for name in ("smo", "interior-point", "budgeted-sgd"))
VALUES = {"gamma": "0.5", "degree": "2", "coef0": "0", "tol": "1e-3", "resident_rows": "50"}

USELESS = {  # by what is trained: the option, with what it has no effect, and what it is for
    "gamma": (["--gamma", "scale"], "--gamma has no effect with --kernel linear", "--kernel rbf or poly or sigmoid"),
    "coef0": ([*SMO, "--kernel", "rbf", "--coef0", "0"], "--coef0 has no effect with --kernel rbf", "poly or sigmoid"),
    "ranks": (
        ["--task", "rank", "--resident-rows", "9"],
        "--resident-rows has no effect with --solver cutting-plane and --task rank",
        "remove it, or choose --solver newton or smo or irwls",
    ),
    "resume of a plan": (["--plan", "--resume"], "--resume has no effect with --plan", "train without --plan"),
    "overwriting a plan": (["--plan", "--overwrite"], "--overwrite has no effect with --plan", "train without --plan"),
    "workers": (
        ["--scheduler", "tcp://127.0.0.1:1", "--workers", "1"],
        "--workers has no effect with --scheduler",
        "use processes on this machine",
    ),
    "rows of Platt": (
        [*SMO, "--option", "selection=platt", "--resident-rows", "50"],
        "--resident-rows has no effect with selection=platt",
        "choose selection=second-order|largest|smallest|random|chunking",
    ),
    "cache": (
        [*SMO, "--option", "cache_bytes=100"],
        "--option cache_bytes has no effect with kernel=linear",
        "choose kernel=rbf|poly|sigmoid",
    ),
    "rule": (
        [*IPM, "--option", "reduction=none", "--option", "rule=omega"],
        "--option rule has no effect with reduction=none",
        "choose reduction=adaptive-balanced|adaptive|fixed",
    ),
    "theta": (
        [*IPM, "--option", "theta=10", "--option", "reduction=fixed"],
        "--option theta has no effect with reduction=fixed",
        "choose reduction=adaptive-balanced|adaptive",
    ),
    "label": (["--label", "cell"], "rows.zarr: --label has no effect on a dataset that ingest wrote", "AnnData files"),
}


@pytest.mark.parametrize("case", USELESS)
def test_training(run: Run, data: Path, tmp_path: Path, case: str) -> None:
    arguments, reason, remedy = USELESS[case]
    ran = run("train", data, "--out", tmp_path / "run", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("streamsvm train: ")
    assert reason in ran.err
    assert remedy in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kernel", PARAMETERS)
@pytest.mark.parametrize("name", ["gamma", "degree", "coef0"])
@pytest.mark.parametrize("command", ["train", "tune", "features"])
def test_every_parameter_of_every_kernel(run: Run, tmp_path: Path, command: str, kernel: str, name: str) -> None:
    """What the record of a kernel does not name is refused; a missing dataset tells that the others are taken."""
    out = ["f.zarr"] if command == "features" else ["--out", tmp_path / "run", "--C", "1", "--solver", "smo"]
    ran = run(command, tmp_path / "none.zarr", *out, "--kernel", kernel, f"--{name}", VALUES[name])
    expected = "no such dataset" if name in PARAMETERS[kernel] else f"--{name} has no effect with --kernel {kernel};"
    if (command, kernel) == ("features", "precomputed"):  # which has no features
        expected = "invalid choice: 'precomputed'"
    assert (ran.code, expected in ran.err) == (2, True)


@pytest.mark.parametrize("name", ["tol", "resident_rows"])
@pytest.mark.parametrize("method", SOLVERS, ids=lambda method: f"{method.name}, {method.losses[0]}")
def test_every_setting_of_every_method(run: Run, tmp_path: Path, method: object, name: str) -> None:
    assert isinstance(method, type(SOLVERS[0]))
    is_sparse = SPARSE in method.losses  # smooth losses with the penalty l1
    able = [
        (task, loss)
        for task, entry in PROBLEMS.items()
        for loss, kinds in entry.losses.items()
        if set(kinds) & ({"smooth"} if is_sparse else set(method.losses))
    ]
    task, loss = able[0]
    asked = ["--solver", method.name, *name_task(task).split(), "--loss", loss]
    asked += [f"--{name.replace('_', '-')}", VALUES[name]]
    asked += ["--penalty", "l1"] * is_sparse
    ran = run("train", tmp_path / "none.zarr", "--out", tmp_path / "run", *asked)
    reads = SOLVERS[0].reads if (method.name, method.losses) == (SOLVERS[0].name, ("convex",)) else method.reads
    assert (ran.code, "no such dataset" in ran.err, "has no effect" in ran.err) == (2, name in reads, name not in reads)


def test_files_and_datasets(run: Run, text: Path, data: Path, trained: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.parquet"
    pd.DataFrame({"a": [1.0, 2.0], "kind": [0, 1]}).to_parquet(table)
    cases = {
        "omit it, or name the format, such as --format csv": [
            ("ingest", text, tmp_path / "d.zarr", "--label", "kind"),
            ("predict", trained, text, "--out", tmp_path / "p.csv", "--label", "kind"),
            ("evaluate", trained, text, "--label", "kind"),
        ],
        "--sample-weight has no effect on svmlight files": [
            ("ingest", text, tmp_path / "d.zarr", "--sample-weight", "kind")
        ],
        "--header has no effect on parquet files, only on csv: omit it": [
            ("ingest", table, tmp_path / "d.zarr", "--label", "kind", "--header", "no")
        ],
        "--qid has no effect on a dataset": [("evaluate", trained, data, "--qid", "kind")],
        "--header has no effect on a dataset": [("evaluate", trained, data, "--header", "no")],
        "--format has no effect on a dataset": [
            ("predict", trained, data, "--out", tmp_path / "p.csv", "--format", "csv")
        ],
        "--id has no effect on a dataset": [("predict", trained, data, "--out", tmp_path / "p.csv", "--id", "kind")],
        "--date-format has no effect on a dataset": [("evaluate", trained, data, "--date-format", "%Y")],
        "rows.zarr: --label has no effect on a dataset that ingest wrote": [
            ("info", data, "--label", "kind"),
            ("verify", trained, data, "--label", "kind"),
            ("evaluate", trained, data, "--label", "kind"),
            ("features", data, tmp_path / "f.zarr", "--label", "kind"),
        ],
    }
    for message, commands in cases.items():
        for command in commands:
            ran = run(*command)
            assert (ran.code, message in ran.err) == (2, True), (command, ran.err)
    assert list(tmp_path.iterdir()) == [table]


def test_options_with_an_effect_are_taken(run: Run, data: Path, tmp_path: Path) -> None:
    rule = [*IPM, "--option", "reduction=fixed", "--option", "rule=distance", "--option", "most_rows=200"]
    poly = [*SMO, "--kernel", "poly", "--gamma", "0.3", "--degree", "2", "--coef0", "1", "--resident-rows", "90%"]
    for k, arguments in enumerate((rule, poly, [*SGD, "--gamma", "0.3"], ["--plan", "--out", tmp_path / "unused"])):
        assert run("train", data, "--out", tmp_path / str(k), *arguments).code in (0, 3)
    assert not (tmp_path / "unused").exists()
