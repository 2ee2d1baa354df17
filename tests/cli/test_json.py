"""`--json`: each command prints one object on standard output, and nothing else there."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamsvm.cli.arguments import make_parser
from streamsvm.data.open import open_dataset
from tests.commands import Run, data, run, text, trained  # noqa: F401

WITHOUT = {"demo"}  # whose output is a story


def ask(run: Run, *arguments: object) -> dict[str, Any]:
    ran = run(*arguments, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)  # all of standard output is one object
    assert isinstance(found, dict)
    return found


def test_every_command_takes_it() -> None:
    commands: Any = next(action for action in make_parser()._actions if action.dest == "command")
    lacking = {name for name, each in commands.choices.items() if "--json" not in each._option_string_actions}
    assert lacking == WITHOUT


def test_from_ingest_to_delete(run: Run, text: Path, tmp_path: Path) -> None:
    """The objects tell what is there: rows, features, files."""
    rows = tmp_path / "rows.zarr"
    made = ask(run, "ingest", text, rows)
    stored = open_dataset(rows)
    assert (made["n_rows"], made["n_features"]) == (300, stored.n_features)
    assert (set(made["classes"]), sum(made["classes"].values())) == ({"-1", "1"}, 300)
    assert made["path"] == str(rows)
    assert made["seconds"] > 0
    assert ask(run, "info", rows)["fingerprint"] == made["fingerprint"]
    assert ask(run, "delete", rows, "--rows", "0-9") == {"path": str(rows), "deleted_rows": 10, "n_rows": 290}


def test_what_a_model_is_used_for(run: Run, data: Path, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert ask(run, "predict", trained, data, "--out", out) == {"out": str(out), "n_rows": 300}
    assert ask(run, "evaluate", trained, data)["n_rows"] == 300
    assert ask(run, "verify", trained, data)["objective_agrees"] is True
    exported = ask(run, "export", trained, "--to", "liblinear", "--out", tmp_path / "model.txt")
    assert (exported["out"], exported["to"]) == (str(tmp_path / "model.txt"), "liblinear")
    imported = ask(run, "import", tmp_path / "model.txt", "--out", tmp_path / "model.npz")
    assert (imported["out"], imported["n_classes"]) == (str(tmp_path / "model.npz"), 2)
    assert ask(run, "report", trained, "--out", tmp_path / "page.html") == {"out": str(tmp_path / "page.html")}


def test_curves_are_told_where_they_are_asked_for(run: Run, data: Path, trained: Path) -> None:
    """Everything else is the same without them, and fits on a screen."""
    plain, full = ask(run, "evaluate", trained, data), ask(run, "evaluate", trained, data, "--curves")
    curves = full.pop("curves")
    assert {len(each) for each in curves.values()} == {len(curves["precision"])}
    assert set(curves) == {"false_positive_rate", "true_positive_rate", "precision"}
    assert full == plain
    assert len(json.dumps(plain)) < 1000
    ran = run("evaluate", trained, data, "--curves")
    assert (ran.code, ran.out, "--curves has no effect without --json; `report RUN --eval" in ran.err) == (2, "", True)


def test_what_trains(run: Run, data: Path, tmp_path: Path) -> None:
    assert ask(run, "train", data, "--out", tmp_path / "run")["status"] == "converged"
    assert ask(run, "train", data, "--plan")["status"] == "planned"
    assert len(ask(run, "tune", data, "--C", "0.1,1", "--folds", "2", "--out", tmp_path / "tuned")["trials"]) == 2
    mapped = ask(run, "features", data, tmp_path / "features.zarr", "--rank", "5", "--gamma", "0.1", "--map", "nystrom")
    assert (mapped["n_rows"], mapped["n_features"]) == (300, 5)


def test_warm_up_without_compiling(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    monkeypatch.setattr("streamsvm.solvers.set_up.compile_all", lambda groups, _: compiled.append(groups))
    monkeypatch.setattr("streamsvm.models.score_rows.compile_all_scores", lambda: None)
    monkeypatch.setattr("streamsvm.data.sources.parsing.compile_parser", lambda _: None)
    found = ask(run, "warm-up")
    assert found["groups"] > len(compiled) > 3
    assert Path(found["cache"]).name


def test_predictions_on_standard_output_are_no_json(run: Run, data: Path, trained: Path) -> None:
    ran = run("predict", trained, data, "--out", "-", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert "--json has no effect with --out -" in ran.err


def test_errors_leave_standard_output_empty(run: Run, tmp_path: Path) -> None:
    ran = run("ingest", tmp_path / "missing.svm", tmp_path / "rows.zarr", "--json")
    assert (ran.code, ran.out) == (2, "")
