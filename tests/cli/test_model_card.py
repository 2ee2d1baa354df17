"""`info` of a model, and its card in Markdown: what they tell is what result and rows tell, and nothing is markup."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score

from streamsvm import SVC, LinearSVC, LinearSVR, Nystroem, OneClassSVM, ingest
from streamsvm.cli.info import write_card
from streamsvm.models.model import LinearModel, load
from tests.commands import Run, run

__all__ = ["run"]

RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(200, 3)) * [1, 10, 1]
KINDS = np.where(X[:, 0] + X[:, 1] / 20 + 0.3 * RANDOM.normal(size=200) > 0, "<b>yes|*x*", "no")
NAMES = ["a", "income", "#c"]


@pytest.fixture
def trained(run: Run, tmp_path: Path) -> Path:
    frame = pd.DataFrame(X, columns=NAMES).assign(kind=KINDS)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    arguments = ("--label", "kind", "--scale", "standard")
    assert run("ingest", tmp_path / "rows.csv", tmp_path / "rows.zarr", *arguments).code == 0
    assert run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run").code == 0
    return tmp_path / "run"


def read_facts(card: str) -> dict[str, str]:
    return dict(re.findall(r"^\* ([^:]+): (.*)$", card, re.M))


def test_the_card_tells_what_the_run_tells(run: Run, trained: Path) -> None:
    ran = run("info", trained, "--card", "--eval", trained.parent / "rows.csv")
    assert ran.code == 0, ran.err
    facts, result = read_facts(ran.out), json.loads((trained / "result.json").read_text())
    assert float(facts["relative gap (P - D) / P"]) == pytest.approx(result["relative_gap"], rel=0.01)
    assert float(facts["objective P"]) == pytest.approx(result["objective"])
    assert facts["rows"] == "200"
    assert facts["column of the labels"] == "kind"
    predicted = LinearSVC().fit(ingest(X, trained.parent / "other.zarr", KINDS, scale="standard")).predict(X)
    assert float(facts["accuracy"]) == pytest.approx(accuracy_score(KINDS, predicted), abs=1e-4)
    model = load(trained)
    assert isinstance(model, LinearModel)
    assert model.scaling is not None
    raw = model.coef * model.scaling.factor
    listed = re.findall(r"^\| (\S+) \| (-?[0-9]\S*) \|$", ran.out.split("## Largest weights")[1], re.M)
    order = np.argsort(-np.abs(raw))
    assert [name.replace("\\", "") for name, _ in listed] == [NAMES[j] for j in order]
    np.testing.assert_allclose([float(value) for _, value in listed], raw[order], rtol=1e-3)


def test_files_of_another_run_are_not_told(run: Run, trained: Path) -> None:
    LinearSVC(C=3).fit(X, KINDS).save(trained / "other.npz")
    facts = read_facts(run("info", trained / "other.npz", "--card").out)
    assert "dataset" not in facts
    assert facts["C"] == "3.0"


def test_labels_are_no_markup(run: Run, trained: Path) -> None:
    card = run("info", trained, "--card", "--eval", trained.parent / "rows.csv").out
    assert "\\<b\\>yes\\|\\*x\\*" in card
    assert not re.search(r"(?<!\\)<b", card)
    widths = {
        len(re.findall(r"(?<!\\)\|", line)) for line in card.splitlines() if line.startswith("| ") and "recall" in line
    }
    assert widths == {5}


def test_info_of_a_model(run: Run, trained: Path) -> None:
    told = run("info", trained).out
    assert re.search(r"solver +cutting-plane", told)
    assert run("info", trained / "model.npz", "--json").result["label_column"] == "kind"


@pytest.mark.parametrize("kind", [SVC(), LinearSVR(), OneClassSVM(), LinearSVC(feature_map=Nystroem(n_components=5))])
def test_cards_of_other_models_without_a_run(tmp_path: Path, kind: object) -> None:
    y = X[:, 0] if isinstance(kind, LinearSVR) else KINDS
    model = kind.fit(X, None if isinstance(kind, OneClassSVM) else y)  # type: ignore[attr-defined]
    model.save(tmp_path / "model.npz")
    card = write_card(load(tmp_path / "model.npz"), tmp_path / "model.npz")
    assert "## Certificate" in card
    assert ("## Largest weights" in card) == isinstance(kind, LinearSVR)
    assert "There are none yet" in card


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{run}", "--verify"], "--verify and --label are for datasets"),
        (["{run}", "--eval", "{rows}"], "--eval has no effect without --card"),
        (["{data}", "--card"], "--card and --eval are for models"),
    ],
)
def test_what_is_refused(run: Run, trained: Path, arguments: list[str], message: str) -> None:
    places = {"run": trained, "data": trained.parent / "rows.zarr", "rows": trained.parent / "rows.csv"}
    ran = run("info", *(argument.format(**places) for argument in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
