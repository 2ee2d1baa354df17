"""A grid of settings in one read of the data: folds, scores, the best model, what it costs, what is refused."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy.sparse import csr_array

import streamsvm
from streamsvm import SVC, LinearSVC, RankSVM
from streamsvm.cli.main import main
from streamsvm.data.rows.source import plan_groups
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.held_out import draw_folds
from streamsvm.runs.train import Training, open_for, train
from streamsvm.runs.tune import list_fits, run_chains, tune
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.solver import need_in_turn, sum_memory
from streamsvm.system.errors import InputError
from tests.conftest import make_problem

RNG = np.random.default_rng(0)
X = RNG.standard_normal((240, 5)).astype(np.float32)
SCORE = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]) + 0.8 * RNG.standard_normal(240)
Y = (SCORE > 0).astype(np.int64)
CLASSES3 = np.digitize(SCORE, [-0.7, 0.7])
COSTS = (0.01, 0.1, 1.0)
FIVE_COSTS = (0.01, 0.03, 0.1, 0.3, 1.0)
OPTIONS = TrainOptions(tol=1e-6, threads=1)
LINES = {"acceleration": "line-search"}


def source_of(labels: Any, qid: Any = None, weight: Any = None) -> ArrayDataset:
    classes, codes = np.unique(labels, return_inverse=True)
    return ArrayDataset(X, codes.astype(np.int32), classes, weight, qid=qid)


@pytest.mark.slow("trains every fit of a grid alone, too")
@pytest.mark.parametrize(
    ("labels", "settings"),
    [
        (Y, {"options": LINES}),
        (CLASSES3, {"options": LINES}),
        (Y, {"solver": "interior-point"}),
        (Y, {"solver": "smo", "kernel": "rbf", "gamma": 0.2, "options": {"working_rows": "50"}, "resident_rows": 80}),
        (CLASSES3, {"solver": "irwls", "kernel": "rbf", "gamma": 0.2}),
    ],
    ids=["two", "three", "interior-point", "smo", "irwls-three"],
)
def test_scores_are_those_of_separate_fits(labels: Any, settings: dict[str, Any]) -> None:
    """Each fold's rows are learnt by estimators that have not seen them; nothing of the grid tells on another."""
    options = replace(OPTIONS, **settings)
    source, folds = source_of(labels), 3
    found = tune(source, options, COSTS, folds=folds)
    fold = draw_folds(source, options, folds)
    for trial in found.trials:
        for k in range(folds):
            out = fold == k
            kept = ArrayDataset(X[~out], source.column("y")[~out], source.classes)  # type: ignore[index]
            alone = train(kept, replace(options, C=trial.C))
            scores = alone.model.decide(X[out])
            right = np.mean((scores > 0 if scores.ndim == 1 else np.argmax(scores, axis=1)) == labels[out])
            assert trial.scores[k] == pytest.approx(right, abs=1.1 / np.count_nonzero(out))  # one row on the border
    assert found.best.mean == max(trial.mean for trial in found.trials)
    again = train(source, replace(options, C=found.best.C))
    assert found.result.model_sha256 == again.model_sha256


def test_a_ranking_keeps_its_queries_together() -> None:
    qid = np.repeat(np.arange(24), 10)
    source, options = source_of(CLASSES3, qid), replace(OPTIONS, task="rank")
    fold = draw_folds(source, options, 4)
    assert all(len(set(fold[qid == q])) == 1 for q in range(24))
    assert np.bincount(fold).tolist() == [60] * 4
    found = tune(source, options, COSTS, folds=4)
    for trial in found.trials:
        for k in range(4):
            out = fold == k
            model = RankSVM(C=trial.C, tol=1e-6).fit(X[~out], CLASSES3[~out], qid=qid[~out])
            assert trial.scores[k] == pytest.approx(model.score(X[out], CLASSES3[out], qid=qid[out]), abs=0.01)


def test_folds_share_out_every_class() -> None:
    source = source_of(np.where(np.arange(240) < 15, "rare", "common"))
    fold = draw_folds(source, OPTIONS, 5)
    rare = np.bincount(fold[:15], minlength=5)
    assert rare.tolist() == [3] * 5
    assert np.bincount(fold).tolist() == [48] * 5
    assert not np.array_equal(fold, draw_folds(source, replace(OPTIONS, seed=1), 5))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return ingest(X, tmp_path_factory.mktemp("rows") / "rows.zarr", Y, chunk_bytes=800)


@pytest.mark.slow("trains on every engine")
@pytest.mark.usefixtures("many_groups")
def test_the_same_bits_on_any_engine(dataset: Dataset, client: Client) -> None:
    assert len(plan_groups(dataset)) >= 5
    found = [tune(dataset, replace(OPTIONS, threads=threads), COSTS, folds=3) for threads in (1, 2, 4)]
    found.append(tune(dataset, OPTIONS, COSTS, folds=3, client=client))
    for other in found[1:]:
        assert other.trials == found[0].trials
        assert other.result.model_sha256 == found[0].result.model_sha256


def test_chains_share_their_reads(dataset: Dataset, without_pins: None) -> None:
    """Nothing is kept in memory here: bytes are reads. Half of the fits start from another, and need fewer of them."""
    costs, folds = (0.01, 0.1, 1.0, 10.0), 4
    found = tune(dataset, replace(OPTIONS, options=LINES), costs, folds=folds)
    assert found.read_bytes == found.passes * dataset.nbytes
    fold = draw_folds(dataset, OPTIONS, folds)
    rows = dataset.take(np.arange(dataset.n_rows))
    alone = []
    for k in range(folds):
        kept = fold != k
        assert rows.y is not None
        source = ArrayDataset(rows.X[kept], rows.y[kept], dataset.classes)  # type: ignore[index]
        alone.append([train(source, replace(OPTIONS, C=C, options=LINES)).passes for C in costs])
    assert found.passes <= 1.5 * np.max(alone) + 1
    warm, cold = [trial.passes for trial in found.trials], np.max(alone, axis=0)
    assert [warm[0], warm[2]] == pytest.approx([cold[0], cold[2]], abs=1)
    assert warm[1] + warm[3] < cold[1] + cold[3]


def test_a_grid_takes_the_reads_of_its_slowest_fit(tmp_path: Path) -> None:
    """And one more, in which the rows that are held out are scored."""
    data = make_problem(3, n=60_000, d=20).store(tmp_path / "rows.zarr", layout="dense", chunk_bytes=1 << 18)
    options = TrainOptions(tol=1e-3, threads=1, memory_bytes=2 << 30)
    found = tune(data, options, COSTS, folds=3)
    assert found.passes == max(trial.passes for trial in found.trials) + 1
    lines = tune(data, replace(options, options=LINES), COSTS, folds=3)
    assert found.passes < lines.passes / 3
    assert found.best.C == lines.best.C


def test_gamma_and_cost(tmp_path: Path) -> None:
    options = replace(OPTIONS, solver="smo", kernel="rbf")
    found = tune(source_of(Y), options, (0.1, 1.0), (0.05, 0.5), folds=3, out=tmp_path / "run")
    assert [(trial.gamma, trial.C) for trial in found.trials] == [(0.05, 0.1), (0.05, 1.0), (0.5, 0.1), (0.5, 1.0)]
    loaded = streamsvm.load(tmp_path / "run")
    assert isinstance(loaded, SVC)
    assert (loaded.C, loaded.gamma) == (found.best.C, found.best.gamma)


@pytest.mark.parametrize("form", ["array", "sparse", "dataset"])
def test_from_python(form: str, dataset: Dataset) -> None:
    rows: dict[str, tuple[Any, ...]] = {"array": (X, Y), "sparse": (csr_array(X), Y), "dataset": (dataset,)}
    found = streamsvm.tune(*rows[form], C=COSTS, folds=3, memory="2GB", threads=1)
    assert isinstance(found.estimator, LinearSVC)
    assert found.estimator.C == found.best.C
    assert found.estimator.score(X, Y) > 0.8
    with pytest.raises(InputError, match="unexpected keyword argument 'cost'"):
        streamsvm.tune(*rows[form], C=COSTS, cost=1)


def test_gamma_scale_is_a_value_among_others(dataset: Dataset, tmp_path: Path) -> None:
    command = ["tune", str(dataset.path), "--kernel", "rbf", "--C", "0.1", "--folds", "2", "--gamma", "0.3,scale"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    told = json.loads((tmp_path / "run" / "tuning.json").read_text())
    variance = np.concatenate([dataset.read(k).X for k in range(dataset.n_chunks)]).var(dtype=np.float64)
    gammas = sorted(trial["gamma"] for trial in told["trials"])
    assert gammas == pytest.approx(sorted([0.3, 1 / (dataset.n_features * variance)]))


def test_from_the_command_line(dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    command = ["tune", dataset.path, "--C", "0.01,0.1,1", "--folds", "3", "--out"]
    assert main([*command, str(run)]) == 0
    table = capsys.readouterr().out
    assert table.count("<- best") == 1
    assert "9 fits (3 folds)" in table
    assert main([*command, str(tmp_path / "other"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told == json.loads((tmp_path / "other" / "tuning.json").read_text())
    assert [trial["C"] for trial in told["trials"]] == [0.01, 0.1, 1.0]
    assert told["C"] == max(told["trials"], key=lambda trial: trial["mean"])["C"]
    other = json.loads((run / "result.json").read_text())
    assert (told["status"], told["model_sha256"]) == ("converged", other["model_sha256"])
    page = (run / "tuning.html").read_text()
    assert "<svg" in page
    assert "nothing to show" not in page
    assert main(["evaluate", str(run), dataset.path]) == 0
    assert main([*command, str(run)]) == 2
    assert "already holds a run of a grid" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--C", "1,x"], "write numbers, separated by commas"),
        (["--C", "0"], "must be positive"),
        (["--C", "1", "--kernel", "rbf", "--gamma", "scale,x"], "'scale,x': write numbers, scale or auto"),
        (["--C", "1", "--folds", "1"], "from 2 to 254"),
        (["--C", "1", "--gamma", "0.1"], "--gamma has no effect with --kernel linear"),
        (["--C", "1", "--solver", "budgeted-sgd"], "cannot be tuned"),
        (["--C", "1", "--solver", "cutting-plane", "--kernel", "rbf"], "cutting-plane supports only the linear kernel"),
        (["--C", "1", "--folds", "200"], "too few for 200 folds, each of which needs one"),
        (["--C", "1", "--memory", "50MB"], "of memory is needed"),
    ],
)
def test_refused(
    arguments: list[str], message: str, dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["tune", dataset.path, "--out", str(tmp_path / "run"), *arguments])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_kernel_without_a_bound_can_be_tuned() -> None:
    """Nothing is proved, so no fit counts as done on the way, and none is told as converged."""
    source = make_problem(5, n=120, d=3).in_memory()
    options = TrainOptions(solver="smo", kernel="sigmoid", gamma=0.01, threads=1)
    found = tune(source, options, (0.1, 1.0), folds=2)
    assert found.result.lower_bound is None
    assert [trial.converged for trial in found.trials] == [False, False]


def test_costs_are_refused_before_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_problem(5, n=120, d=3).in_memory()
    monkeypatch.setattr(type(source), "tiles", None)
    with pytest.raises(InputError, match="C is -1"):
        tune(source, TrainOptions(solver="smo", kernel="rbf", threads=1), (1.0, -1.0), folds=2)
    with pytest.raises(InputError, match="folds is 1"):
        tune(source, TrainOptions(solver="smo", kernel="rbf", threads=1), (1.0,), folds=1)


@pytest.mark.slow("trains on a grid")
def test_at_most_two_of_its_trainings_live_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source, begun, most = source_of(Y), list[Any](), [0]
    begin = Training.begin

    def count(training: Training) -> None:
        begun.append(weakref.ref(training))
        gc.collect()
        most[0] = max(most[0], sum(one() is not None for one in begun))
        begin(training)

    monkeypatch.setattr(Training, "begin", count)
    chain = [(each, set_up(source, each)) for each in (replace(OPTIONS, C=C, options=LINES) for C in FIVE_COSTS)]
    with open_for(source, OPTIONS, list_fits([chain]), None) as opened:
        (results,) = run_chains(source, [chain], opened, lambda *_: None)
    assert (len(results), len(begun), most) == (5, 5, [2])


def test_further_fits_cost_their_models() -> None:
    source = source_of(Y)
    fits = [set_up(source, replace(OPTIONS, C=C, options=LINES)) for C in FIVE_COSTS]
    one, two, five = (need_in_turn(fits[:n], 1) for n in (1, 2, 5))
    model_bytes = 8 * (source.n_features + 1)
    assert one == fits[0].memory(1)
    held = one.driver_bytes - one.turn_bytes
    assert two.driver_bytes == one.driver_bytes + held
    assert five.driver_bytes == two.driver_bytes + 5 * model_bytes
    assert (five.totals_bytes, five.walk_bytes) == (one.totals_bytes, one.walk_bytes)
    assert five.shared_bytes == max(one.shared_bytes, 5 * model_bytes)


def test_kernel_models_may_be_as_large_as_their_fits() -> None:
    source, options = source_of(Y), TrainOptions(solver="smo", kernel="rbf", gamma=0.1)
    fits = [set_up(source, replace(options, C=C)) for C in FIVE_COSTS]
    one = fits[0].memory(1)
    expected = replace(
        sum_memory([fit.memory(1) for fit in fits]), totals_bytes=one.totals_bytes, gathered_bytes=one.gathered_bytes
    )
    assert need_in_turn(fits, 1) == expected
