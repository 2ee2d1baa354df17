"""Commands on rows with lists of labels: from text to predictions, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from streamsvm.runs.results import STATUSES
from tests.commands import Run, run  # noqa: F401
from tests.label_problems import make_labels

PROBLEM = make_labels(3, n=500)
NAMES = np.array([2, 4, 5, 10, 30])


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 rows, labels 2, 4, 5, 10 and 30."""
    lines = [
        ",".join(map(str, NAMES[y[:5]])) + " " + " ".join(f"{j + 1}:{value:.9g}" for j, value in enumerate(x))
        for x, y in zip(PROBLEM.X, PROBLEM.Y, strict=True)
    ]
    path = tmp_path_factory.mktemp("lists") / "rows.svm"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_the_commands(loss: str, text: Path, tmp_path: Path, run: Run) -> None:  # noqa: F811
    data, out = tmp_path / "rows.zarr", tmp_path / "run"
    assert run("ingest", text, data, "--multi-label", "--shuffle", "no").code == 0
    trained = run("train", data, "--loss", loss, "--out", out, "--json")
    assert (trained.code, trained.err.count("Traceback")) == (0, 0)
    assert [one["label"] for one in trained.result["problems"]] == NAMES.tolist()
    assert trained.result["gaps"]["unproved"] == []
    assert trained.result["gaps"]["worst"] <= 1e-3
    measured = run("evaluate", out, data, "--json").result
    of_text = run("evaluate", out, text, "--json").result
    curve, of_text_curve = ([[*part.values()] for part in one.pop("reliability", [])] for one in (measured, of_text))
    np.testing.assert_allclose(curve, of_text_curve, rtol=1e-12)  # rows are scored in other parts
    for name in {"brier_score", "log_loss"} & {*measured}:
        assert measured.pop(name) == pytest.approx(of_text.pop(name), rel=1e-12)
    assert measured == of_text
    assert measured["n_rows"] == 500
    assert measured["labels"]["10"]["rows"] == PROBLEM.Y[:, 3].sum()
    assert "as the mean of 5 labels" in run("evaluate", out, data).out
    for ending in ("csv", "npy", "zarr"):
        assert run("predict", out, text, "--out", tmp_path / f"p.{ending}").code == 0
    found, stored = np.load(tmp_path / "p.npy"), zarr.open_group(str(tmp_path / "p.zarr"), mode="r")
    np.testing.assert_array_equal(stored["label"][:], found)  # type: ignore[index]
    np.testing.assert_array_equal(stored["score"][:] > 0, found)  # type: ignore[index,operator]
    cells = [" ".join(map(str, NAMES[row.astype(bool)])) or '""' for row in found]
    assert (tmp_path / "p.csv").read_text().splitlines() == ["labels", *cells]
    assert run("verify", out, data).code == 0
    likely = run("predict", out, text, "--out", tmp_path / "likely.csv", "--probabilities")
    assert likely.code == (0 if loss == "logistic" else 2)
    if loss == "logistic":
        lines = [line.split(",") for line in (tmp_path / "likely.csv").read_text().splitlines()]
        assert lines[0] == ["labels", *(f"probability {name}" for name in NAMES)]
        np.testing.assert_array_equal(np.array([line[1:] for line in lines[1:]], float) > 0.5, found)


def test_probabilities_of_labels(text: Path, tmp_path: Path, run: Run) -> None:  # noqa: F811
    """A training that is stopped and resumed has the bits of a whole one."""
    data, given = tmp_path / "rows.zarr", ("--loss", "squared_hinge", "--probabilities", "sigmoid", "--tol", "1e-6")
    run("ingest", text, data, "--multi-label")
    whole = run("train", data, *given, "--out", tmp_path / "run", "--json")
    assert (whole.code, whole.err.count("Traceback")) == (0, 0)
    first = run("train", data, *given, "--out", tmp_path / "cut", "--max-passes", 1)
    assert first.code == STATUSES["pass_limit"].exit_code
    resumed = run("train", data, *given, "--out", tmp_path / "cut", "--resume", "--json")
    assert resumed.result["model_sha256"] == whole.result["model_sha256"]
    assert run("predict", tmp_path / "run", text, "--out", tmp_path / "likely.csv", "--probabilities").code == 0
    lines = [line.split(",") for line in (tmp_path / "likely.csv").read_text().splitlines()]
    assert lines[0] == ["labels", *(f"probability {name}" for name in NAMES)]
    likely = np.array([line[1:] for line in lines[1:]], float)
    shown = run("evaluate", tmp_path / "run", text)
    assert f"Brier score {np.mean((likely - PROBLEM.Y[:, :5]) ** 2):.4f}" in shown.out
    assert "decisions" in shown.out
    assert run("report", tmp_path / "run").code == 0
    assert run("info", tmp_path / "run", "--card").code == 0


def test_the_outcome_names_the_labels_that_are_not_proved(text: Path, tmp_path: Path, run: Run) -> None:  # noqa: F811
    run("ingest", text, tmp_path / "rows.zarr", "--multi-label")
    given = ("--loss", "squared_hinge", "--tol", "1e-12", "--max-passes", 1, "--option", "sample_rows=20")
    ran = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run", *given)
    assert ran.code == STATUSES["pass_limit"].exit_code
    assert "0 of 5 labels are proved" in ran.out
    assert "not proved: 2, 4, 5, 10 and 30" in ran.out


def test_features_keep_the_labels(text: Path, tmp_path: Path, run: Run) -> None:  # noqa: F811
    run("ingest", text, tmp_path / "rows.zarr", "--multi-label")
    assert run("features", tmp_path / "rows.zarr", tmp_path / "mapped.zarr", "--map", "polynomial").code == 0
    told, mapped = (run("info", tmp_path / f"{name}.zarr", "--verify", "--json").result for name in ("rows", "mapped"))
    assert mapped["classes"] == told["classes"]
    assert run("train", tmp_path / "mapped.zarr", "--loss", "logistic", "--out", tmp_path / "run").code == 0
    assert run("evaluate", tmp_path / "run", text).code == 0


def test_the_plan(text: Path, tmp_path: Path, run: Run) -> None:  # noqa: F811
    run("ingest", text, tmp_path / "rows.zarr", "--multi-label")
    ran = run("train", tmp_path / "rows.zarr", "--loss", "squared_hinge", "--plan")
    assert ran.code == 0
    assert "passes " in ran.out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("train", "--solver", "smo"), "solver for linear models"),
        (("train", "--task", "rank"), "rows have sets of labels; the task rank requires one label per row"),
        (("train", "--task", "regress"), "rows have sets of labels"),
        (("train", "--probabilities", "temperature"), "probabilities by temperature need one label per row"),
        (("train", "--multi-class", "crammer_singer"), "rows have sets of labels"),
    ],
)
def test_what_is_refused(
    command: tuple[str, ...],
    message: str,
    text: Path,
    tmp_path: Path,
    run: Run,  # noqa: F811
) -> None:
    run("ingest", text, tmp_path / "rows.zarr", "--multi-label")
    ran = run(command[0], tmp_path / "rows.zarr", "--out", tmp_path / "run", *command[1:])
    assert (ran.code, ran.err.count("Traceback")) == (2, 0)
    assert message in ran.err
    assert not (tmp_path / "run").exists()


def test_labels_of_another_kind_are_refused(text: Path, tmp_path: Path, run: Run) -> None:  # noqa: F811
    """A model of sets of labels meets rows of one label each, and the other way round."""
    run("ingest", text, tmp_path / "sets.zarr", "--multi-label")
    np.savez(tmp_path / "one.npz", X=PROBLEM.X, y=PROBLEM.Y[:, 2].astype(int))
    run("ingest", tmp_path / "one.npz", tmp_path / "one.zarr")
    for name in ("sets", "one"):
        run("train", tmp_path / f"{name}.zarr", "--loss", "squared_hinge", "--out", tmp_path / name)
    for model, rows in (("sets", "one.zarr"), ("sets", "one.npz"), ("one", "sets.zarr")):
        ran = run("evaluate", tmp_path / model, tmp_path / rows)
        assert (ran.code, "but the training rows had" in ran.err) == (2, True)
    ran = run("train", tmp_path / "one.zarr", "--task", "multi-label", "--out", tmp_path / "run")
    assert (ran.code, "do not have sets of labels" in ran.err) == (2, True)
    csv = tmp_path / "a.csv"
    csv.write_text("label,x\n1,2\n0,1\n")
    ran = run("ingest", csv, tmp_path / "x.zarr", "--multi-label")
    assert (ran.code, "--multi-label has no effect on csv files" in ran.err) == (2, True)
