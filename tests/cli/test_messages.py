"""Messages as a reader would have them: one thing is singular, reasons are told, and options go by their names."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from pathlib import Path

import pytest

from streamsvm.system.errors import say_count
from tests.commands import Run, data, run, text  # noqa: F401

EXACT = ("--option", "acceleration=none", "--tol", "1e-12")


@pytest.mark.parametrize(
    ("n", "noun", "said"),
    [(1, "pass", "1 pass"), (2, "pass", "2 passes"), (0, "row", "0 rows"), (1234, "query", "1,234 queries")],
)
def test_counts(n: int, noun: str, said: str) -> None:
    assert say_count(n, noun) == said


def test_one_is_singular(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.svm").write_text("-1 1:1\n1 1:2\n")
    stored = run("ingest", tmp_path / "rows.svm", tmp_path / "rows.zarr").out
    assert ": 2 rows of 1 feature, " in stored
    assert " in 1 chunk, " in stored
    ran = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run", *EXACT, "--max-passes", "1")
    assert (ran.code, ", 1 pass over 2 rows, " in ran.out) == (3, True)
    (tmp_path / "one.svm").write_text("1 1:3\n")
    assert " on 1 row" in run("evaluate", tmp_path / "run", tmp_path / "one.svm").out
    (tmp_path / "two.svm").write_text("1 1:3\n2 1:3\n")
    told = run("evaluate", tmp_path / "run", tmp_path / "two.svm").out
    assert "  1 row has a label that the model does not know" in told
    (tmp_path / "wide.csv").write_text("1,2,3\n1,2\n")
    wide = run("predict", tmp_path / "run", tmp_path / "wide.csv", "--out", tmp_path / "p.csv", "--header", "no")
    assert "2 columns, but the first line has 3" in wide.err


@pytest.mark.parametrize(
    ("limit", "status", "reason"),
    [
        (("--max-passes", "1"), "pass_limit", "the limit of 1 pass was reached at a gap of "),
        (("--max-passes", "3"), "pass_limit", "the limit of 3 passes was reached at a gap of "),
        (("--max-seconds", "1e-9"), "time_limit", "the time limit was reached after 1 pass at a gap of "),
    ],
)
def test_limits_have_a_reason(
    run: Run, data: Path, tmp_path: Path, limit: tuple[str, str], status: str, reason: str
) -> None:
    result = run("train", data, "--out", tmp_path / "run", *EXACT, *limit, "--json").result
    assert result["status"] == status
    assert result["status_reason"].startswith(reason)
    assert result["status_reason"].endswith("(tol 1e-12)")


def test_epochs_that_are_made_have_a_reason(run: Run, data: Path, tmp_path: Path) -> None:
    ran = run("train", data, "--out", tmp_path / "run", "--solver", "budgeted-sgd", "--gamma", "0.1", "--json")
    told = "the requested number of passes has been made; this solver proves no gap"
    assert (ran.code, ran.result["status"], ran.result["status_reason"]) == (0, "pass_limit", told)


def test_an_interruption_has_a_reason(run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamsvm.cli.progress.Display.show", interrupt)
    result = run("train", data, "--out", tmp_path / "run", *EXACT, "--json").result
    assert result["status"] == "interrupted"
    assert result["status_reason"].startswith("a signal ended the run after 1 pass")
    assert result["status_reason"].endswith("; its checkpoint is written")


def test_a_dataset_is_no_source(run: Run, data: Path, text: Path, tmp_path: Path) -> None:
    ran = run("ingest", data, tmp_path / "x.zarr")
    told = f"streamsvm ingest: {data}: is already a dataset; use it directly, for example with `streamsvm train`, or "
    assert (ran.code, ran.err.startswith(told)) == (2, True)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "rows.txt").write_bytes(text.read_bytes())
    ran = run("ingest", folder, tmp_path / "x.zarr")
    assert (ran.code, f"{folder}: contains no files with known endings; name its files" in ran.err) == (2, True)
    assert list(tmp_path.iterdir()) == [folder]


def test_settings_are_told_by_their_options(run: Run, data: Path, tmp_path: Path) -> None:
    command = ["train", data, "--out", tmp_path / "run", "--resume"]
    assert run(*command).code == 0
    cases = {
        ("--C", "3"): "class_costs was [1.0, 1.0], now [3.0, 3.0] (set by --C and --class-weight)",
        ("--option", "intercept_scaling=2"): "bias_feature was 1.0, now 2.0 (set by --option intercept_scaling)",
        ("--tol", "1e-2"): "tol was 0.001, now 0.01",
    }
    for given, told in cases.items():
        ran = run(*command, *given)
        message = f"cannot be resumed with other settings: {told}; give the earlier settings, or start again"
        assert (ran.code, ran.err.rstrip().endswith(message)) == (2, True), ran.err


def test_a_training_that_does_not_read_the_queries_says_so(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"{k % 2} qid:{k // 4} 1:{k % 2 + k / 50} 2:1\n" for k in range(24))
    (tmp_path / "rows.svm").write_text(rows)
    assert run("ingest", tmp_path / "rows.svm", tmp_path / "rows.zarr").code == 0
    ran = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "classes")
    assert (ran.code, "--task classify does not read its query ids; --task rank learns" in ran.err) == (0, True)
    ran = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "ranks", "--task", "rank")
    assert (ran.code, "query ids" in ran.err) == (0, False)
