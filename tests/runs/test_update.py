"""A model is updated: from its weights, or with the ball kept beside it; against trainings on all rows."""

from __future__ import annotations

import json
import logging
import signal
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy.sparse import csr_array

from streamsvm import CuttingPlane
from streamsvm.cli.main import main
from streamsvm.data.rows.views import ChunkRange
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.edits import Changes, find_changes
from streamsvm.estimators.linear import LinearSVC
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import LinearModel, load
from streamsvm.options import TrainOptions
from streamsvm.runs import update
from streamsvm.runs.results import Result
from streamsvm.runs.train import open_for, train
from streamsvm.runs.update import NAME, train_from
from streamsvm.solvers.one_read.kept_ball import Ball
from streamsvm.solvers.one_read.setup import ROW_VECTORS, make_solver, sums_bytes
from streamsvm.solvers.start_from import Update, _digest, choose_ball_settings, unpack_ball
from streamsvm.system.errors import InputError, MemoryBudgetError
from streamsvm.system.npz import unpack_arrays, write_arrays

LONG = np.longdouble
N, D = 6000, 5
OPTIONS = TrainOptions(C=0.01, threads=1, resident_rows="40%", options={"acceleration": "one-read"})


def make_rows(seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.7) * scale).astype(np.float32)
    y = np.where(X @ np.arange(1, D + 1) + 2 * scale * rng.standard_normal(N) > 0, 1, -1)
    return X, y, rng.choice([0.0, 1.0, 2.0], N)


def write(path: Path, seed: int = 0, *, n_new: int = 100, layout: str = "dense", scale: float = 1.0) -> Any:
    """Return the dataset without the last rows, a function that appends them, and all rows."""
    X, y, weight = make_rows(seed, scale)
    given = csr_array(X) if layout == "sparse" else X
    first, last = slice(0, N - n_new), slice(N - n_new, N)
    named = {"sample_weight": weight[first], "layout": layout, "chunk_bytes": 20_000}
    dataset = ingest(given[first], path, y[first], **named)

    def append() -> Dataset:
        return ingest(given[last], path, y[last], sample_weight=weight[last], append=True)

    return dataset, append, (X, y, weight)


def find(dataset: Dataset, run: Path) -> tuple[Changes, Ball]:
    """What has changed since the ball of a run was kept, and the ball."""
    ball, about = unpack_ball(unpack_arrays(run / NAME))
    changes = find_changes(dataset, about["fingerprint"])
    assert changes is not None
    return changes, ball


def compute_primal(rows: Any, result: Result, C: float) -> float:
    """P of a model over all rows, in long double."""
    X, y, weight = rows
    model = result.model
    assert isinstance(model, LinearModel)
    w, b = model.coef.astype(LONG), LONG(model.intercept)
    loss = np.maximum(0, 1 - y * (X.astype(LONG) @ w + b))
    return float((w @ w + b * b) / 2 + C * (weight.astype(LONG) @ loss))


def require_certificate(rows: Any, result: Result, C: float, optimum: Result) -> None:
    P = compute_primal(rows, result, C)
    assert result.status == "converged"
    assert result.lower_bound is not None
    assert optimum.lower_bound is not None
    assert result.rounding_bound is not None
    assert abs(result.objective - P) <= result.rounding_bound + 1e-12 * P
    assert result.lower_bound <= optimum.objective + 1e-12 * P
    assert optimum.lower_bound <= P + 1e-12 * P
    assert P - result.lower_bound <= 1e-3 * P + 1e-12 * P


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e4])
def test_new_rows_alone_are_read(layout: str, scale: float, tmp_path: Path) -> None:
    """And again: the ball of the updated model stands for all rows until then."""
    options = replace(OPTIONS, C=OPTIONS.C / scale**2)
    dataset, append, rows = write(tmp_path / "d.zarr", layout=layout, scale=scale)
    train_from(dataset, options, tmp_path / "0", keep_ball=True)
    for k in range(2):
        dataset = append()
        rows = rows if k == 0 else tuple(np.concatenate((part, part[-100:])) for part in rows)
        result = train_from(dataset, options, tmp_path / f"{k + 1}", start_from=tmp_path / f"{k}", keep_ball=True)
        assert (result.passes, result.n_rows) == (0, N + 100 * k)
        assert 0 < result.read_bytes < 0.05 * dataset.nbytes
        optimum = train(dataset, replace(options, tol=1e-7))
        require_certificate(rows, result, options.C, optimum)
        assert result.rounding_bound is not None
        assert optimum.rounding_bound is not None
        assert result.rounding_bound >= 0.3 * optimum.rounding_bound  # that of all rows is charged
        assert load(tmp_path / f"{k + 1}").info["problem"]["n_rows"] == N + 100 * k


@pytest.mark.slow("trains on every engine")
def test_threads_and_workers_find_the_same_bits(tmp_path: Path, client: Client) -> None:
    dataset, append, _ = write(tmp_path / "d.zarr", n_new=1000)
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    dataset = append()
    one = train_from(dataset, OPTIONS, start_from=tmp_path / "0")
    for given in ({"options": replace(OPTIONS, threads=3)}, {"options": OPTIONS, "client": client}):
        other = train_from(dataset, start_from=tmp_path / "0", **given)
        assert other.model_sha256 == one.model_sha256
    assert one.passes == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_ball_that_is_left_is_told(seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """New rows of another kind move the optimum out of the ball; the result is that of all rows."""
    dataset, _, rows = write(tmp_path / "d.zarr", seed)
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    X, y, weight = make_rows(seed + 10)
    dataset = ingest(-X, tmp_path / "d.zarr", y, sample_weight=weight, append=True)
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        result = train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0")
    assert "All rows are read: the new optimum is not proved to lie in the kept ball" in caplog.text
    assert result.passes >= 1
    assert result.read_bytes > dataset.nbytes
    old = tuple(part[:-100] for part in rows)
    every = tuple(np.concatenate(pair) for pair in zip(old, (-X, y, weight), strict=True))
    require_certificate(every, result, OPTIONS.C, train(dataset, replace(OPTIONS, tol=1e-7)))


def test_other_costs_and_no_new_rows_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset, append, rows = write(tmp_path / "d.zarr")
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        assert train_from(dataset, OPTIONS, start_from=tmp_path / "0").passes >= 1
        assert "no rows were appended or deleted since the ball was kept" in caplog.text
        dataset, options = append(), replace(OPTIONS, C=0.02)
        result = train_from(dataset, options, start_from=tmp_path / "0")
        assert "the kept ball was made for other costs" in caplog.text
    require_certificate(rows, result, 0.02, train(dataset, replace(options, tol=1e-7)))


def test_all_near_rows_are_charged(tmp_path: Path) -> None:
    """Also where today's options have fewer resident rows than the ball: in memory, and in the rounding of sums."""
    dataset, append, rows = write(tmp_path / "d.zarr", n_new=1000)
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    few, dataset = replace(OPTIONS, resident_rows="1%"), append()
    changes, ball = find(dataset, tmp_path / "0")
    fit = Update(changes, choose_ball_settings(dataset, few), ball, "0", [])
    n_near, row_bytes = len(ball.near.numbers), dataset.nbytes // N + 64
    assert n_near > 1000
    assert fit.start().terms >= n_near
    kept = n_near + 2 * n_near * 1000 // (N - 1000)
    assert fit.memory(1).driver_bytes >= (3 * row_bytes + 8 * ROW_VECTORS) * kept
    require_certificate(
        rows, train_from(dataset, few, start_from=tmp_path / "0"), few.C, train(dataset, replace(OPTIONS, tol=1e-7))
    )


def test_an_update_without_memory_reads_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The memory of the update is refused, and not the training."""
    dataset, append, rows = write(tmp_path / "d.zarr")
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    dataset = append()

    def refuse(source: Any, *given: Any) -> Any:
        if isinstance(source, ChunkRange):
            raise MemoryBudgetError("5 GB of memory is needed")
        return open_for(source, *given)

    monkeypatch.setattr(update, "open_for", refuse)
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        result = train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0")
    assert "All rows are read: the ball and the new rows need more memory (5 GB" in caplog.text
    assert result.passes >= 1
    require_certificate(rows, result, OPTIONS.C, train(dataset, replace(OPTIONS, tol=1e-7)))


@pytest.mark.parametrize("acceleration", ["one-read", "line-search"])
def test_keeping_a_ball_is_projected(acceleration: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read that finds it keeps resident rows, whichever solver the training has."""
    dataset, _, _ = write(tmp_path / "d.zarr")
    options = replace(OPTIONS, resident_rows=None, options={"acceleration": acceleration})
    found: list[int] = []

    def note(source: Any, options: TrainOptions, fits: Any, client: Any) -> Any:
        found.append(fits[0][0].memory(1).driver_bytes)
        return open_for(source, options, fits, client)

    monkeypatch.setattr(update, "open_for", note)
    train_from(dataset, options, tmp_path / "0", keep_ball=True)
    needed = make_solver(dataset, choose_ball_settings(dataset, options)).memory(1)
    assert found == [needed.driver_bytes]


def test_the_ball_is_there_before_its_model_and_nobody_writes_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed while its ball is found has no model, and --resume makes both."""
    dataset, _, _ = write(tmp_path / "d.zarr")

    def overtake(*given: Any) -> Any:
        train(dataset, replace(OPTIONS, C=0.02), tmp_path / "0", overwrite=True)
        return open_for(*given)

    with monkeypatch.context() as patch:
        patch.setattr(update, "open_for", overtake)
        with pytest.raises(InputError, match="is writing to it"):
            train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    assert (tmp_path / "0" / "checkpoint.npz").exists()
    assert not (tmp_path / "0" / "model.npz").exists()
    result = train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True, resume=True)
    assert (tmp_path / "0" / NAME).exists()
    assert load(tmp_path / "0").info["objective"] == result.objective == train(dataset, OPTIONS).objective


def test_what_a_ball_costs_is_told(tmp_path: Path) -> None:
    """All rows are read once more; the passes are those of the training."""
    dataset, _, _ = write(tmp_path / "d.zarr")
    alone = train(dataset, OPTIONS)
    result = train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    assert result.passes == alone.passes
    assert result.read_bytes >= alone.read_bytes + dataset.nbytes
    assert json.loads((tmp_path / "0" / "result.json").read_text()) == result.as_json()
    assert result.seconds > result.history[-1]["seconds"]


def test_the_totals_of_an_update_are_those_of_the_new_rows(tmp_path: Path) -> None:
    """A group of new rows keeps the share of its rows that the ball has of its own, and no group is larger."""
    dataset, append, _ = write(tmp_path / "d.zarr", n_new=100)
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    dataset = append()
    changes, ball = find(dataset, tmp_path / "0")
    settings = choose_ball_settings(dataset, OPTIONS)
    fit = Update(changes, settings, ball, "0", [])
    row_bytes, cuts = dataset.nbytes // N + 64, sums_bytes(D + 1)
    share = len(ball.near.numbers) / ball.n_rows
    assert fit.memory(1).totals_bytes - cuts == pytest.approx(6 * (100 * share + 1) * row_bytes, rel=0.05)
    assert fit.memory(1).totals_bytes < make_solver(dataset, settings).memory(1).totals_bytes


@pytest.mark.parametrize("place", ["cutting_plane.near_rows.add_near", "one_read.solver.minimise_rows"])
def test_ctrl_c_ends_an_update_without_a_model(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes while the new rows are read, or while the problem of all near rows is solved."""
    dataset, append, _ = write(tmp_path / "d.zarr")
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    dataset = append()
    whole = train_from(dataset, OPTIONS, start_from=tmp_path / "0")
    module, _, name = place.rpartition(".")
    called = getattr(import_module(f"streamsvm.solvers.{module}"), name)

    def press(*given: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return called(*given)

    with monkeypatch.context() as patch:
        patch.setattr(f"streamsvm.solvers.{place}", press)
        with pytest.raises(KeyboardInterrupt):
            train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0", keep_ball=True)
    assert not (tmp_path / "1").exists()
    result = train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0", keep_ball=True, resume=True)
    assert (result.passes, result.model_sha256) == (0, whole.model_sha256)


def test_an_update_goes_on_with_the_same_ball_only(tmp_path: Path) -> None:
    """A ball at another centre proves as much, but its update has other bits."""
    dataset, append, _ = write(tmp_path / "d.zarr")
    for name, tol in (("0", 1e-3), ("other", 1e-6)):
        train_from(dataset, replace(OPTIONS, tol=tol, resident_rows="41%"), tmp_path / name, keep_ball=True)
    dataset = append()
    train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0")
    with pytest.raises(InputError, match="cannot be resumed with other settings: ball was"):
        train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "other", resume=True)
    train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0", resume=True)


def test_a_ball_that_is_larger_than_memory_is_not_loaded(
    updated: tuple[Dataset, Path], caplog: pytest.LogCaptureFixture
) -> None:
    dataset, run = updated
    with caplog.at_level(logging.WARNING, logger="streamsvm"), pytest.raises(MemoryBudgetError, match="is needed"):
        train_from(dataset, replace(OPTIONS, memory_bytes=1 << 20), start_from=run)
    assert "ball.npz is larger than the remaining memory" in caplog.text


def edit(path: Path, change: Any, sign: bool) -> None:
    """Change the file of a ball, and make its checksum right on request."""
    arrays = unpack_arrays(path)
    about = json.loads(str(arrays.pop("about")))
    change(about, arrays)
    if sign:
        about.pop("sha256")
        about["sha256"] = _digest(about, arrays)
    write_arrays(path, {"about": json.dumps(about), **arrays})


FORGED = {
    "radius": lambda about, _: about.update(radius=1e9),
    "cost": lambda about, _: about.update(cost=0.0),
    "gradient": lambda _, arrays: arrays.update(gradient=2 * arrays["gradient"]),
    "format": lambda about, _: about.update(format=3),
}
UNSOUND = {
    "a column": lambda _, arrays: arrays["X/indices"].__setitem__(3, 5),
    "a negative column": lambda _, arrays: arrays["X/indices"].__setitem__(3, -1),
    "a limit": lambda _, arrays: arrays["X/indptr"].__setitem__(-1, 10**6),
    "limits": lambda _, arrays: arrays["X/indptr"].__setitem__(2, 10**6),
    "a label": lambda _, arrays: arrays["y"].__setitem__(0, 7),
    "a weight": lambda _, arrays: arrays["sample_weight"].__setitem__(0, -1.0),
    "not finite": lambda _, arrays: arrays["A"].__setitem__((0, 0), np.nan),
    "short": lambda _, arrays: arrays.update(margins=arrays["margins"][1:]),
    "a type": lambda _, arrays: arrays.update(y=arrays["y"].astype(np.int64)),
    "missing": lambda _, arrays: arrays.pop("sums"),
    "no rows": lambda about, _: about.update(n_rows=1),
    "a text": lambda about, _: about.update(radius="1"),
    "other features": lambda about, arrays: widen(about, arrays),
    "wider rows": lambda about, arrays: widen(about, arrays, of_rows_only=True),
    "dense rows": lambda _, arrays: make_dense(arrays),
    "no weights": lambda _, arrays: arrays.pop("sample_weight"),
    "within a chunk": lambda about, _: about.update(n_rows=about["n_rows"] - 1),
    "too many rows": lambda about, _: about.update(n_rows=10 * N),
    "a row's number": lambda _, arrays: arrays["numbers"].__setitem__(0, N),
    "a negative number": lambda _, arrays: arrays["numbers"].__setitem__(0, -1),
    "a row twice": lambda _, arrays: arrays["numbers"].__setitem__(0, arrays["numbers"][1]),
    "a negative reach": lambda _, arrays: arrays["reach"].__setitem__(0, -1.0),
    "no fingerprint": lambda about, _: about.pop("fingerprint"),
    "no costs": lambda about, _: about.pop("class_costs"),
    "a fingerprint": lambda about, _: about.update(fingerprint=[]),
    "costs": lambda about, _: about.update(class_costs=1.0),
    "a fraction": lambda about, _: about.update(additions=0.5),
    "fewer rows summed": lambda about, _: about.update(rows_summed=about["n_rows"] - 1),
    "a negative size": lambda about, _: about.update(size=-1.0),
}


def widen(about: Any, arrays: Any, of_rows_only: bool = False) -> None:
    """Give the ball one more feature: in all its arrays, or in its sparse rows only."""
    about["n_features"] += 1
    arrays["X/indices"][3] = D
    for name in () if of_rows_only else ("centre", "gradient", "sums", "largest"):
        arrays[name] = np.append(arrays[name], 1.0)
    if not of_rows_only:
        arrays["A"] = np.eye(D + 2)


def make_dense(arrays: Any) -> None:
    """Give the ball dense rows."""
    data, indices, indptr = (arrays.pop(f"X/{name}") for name in ("data", "indices", "indptr"))
    arrays["X"] = csr_array((data, indices, indptr), shape=(len(indptr) - 1, D)).toarray()


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Path]:
    folder = tmp_path_factory.mktemp("balls")
    dataset, append, _ = write(folder / "d.zarr", layout="sparse")
    train_from(dataset, OPTIONS, folder / "0", keep_ball=True)
    return append(), folder / "0"


@pytest.mark.parametrize("name", [*FORGED, *UNSOUND])
def test_a_damaged_ball_is_refused(name: str, updated: tuple[Dataset, Path]) -> None:
    dataset, run = updated
    content = (run / NAME).read_bytes()
    try:
        edit(run / NAME, FORGED.get(name) or UNSOUND[name], sign=name in UNSOUND)
        with pytest.raises(InputError, match=r"ball\.npz: damaged, or not a ball"):
            train_from(dataset, OPTIONS, start_from=run)
    finally:
        (run / NAME).write_bytes(content)
    assert train_from(dataset, OPTIONS, start_from=run).passes == 0


def test_a_ball_of_other_rows_is_refused(updated: tuple[Dataset, Path], tmp_path: Path) -> None:
    other, append, _ = write(tmp_path / "d.zarr", seed=1)
    for dataset in (other, append()):
        with pytest.raises(InputError, match=r"ball\.npz: was kept for other rows"):
            train_from(dataset, OPTIONS, start_from=updated[1])


@pytest.mark.parametrize("acceleration", ["one-read", "line-search"])
@pytest.mark.parametrize("C", [0.01, 0.03])
def test_a_model_is_a_starting_point(acceleration: str, C: float, tmp_path: Path) -> None:
    """Also a bad one; a resumed run has to start from the same model."""
    dataset, _, rows = write(tmp_path / "d.zarr", n_new=1)
    rows = tuple(part[:-1] for part in rows)
    options = replace(OPTIONS, C=C, options={"acceleration": acceleration})
    options = options if acceleration == "one-read" else replace(options, resident_rows=None)
    best = train(dataset, replace(options, tol=1e-6))
    bad = replace(best.model, coef=-3 * best.model.coef)  # type: ignore[union-attr]
    for model in (best.model, bad):
        result = train(dataset, options, start_from=model)
        require_certificate(rows, result, C, best)
    assert train(dataset, options, start_from=best.model).passes == 1
    train(dataset, options, tmp_path / "run", start_from=bad)
    with pytest.raises(InputError, match="start_from"):
        train(dataset, options, tmp_path / "run", start_from=best.model, resume=True)


def test_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    X, y, _ = make_rows(0)
    dataset = ingest(X, tmp_path / "d.zarr", y)
    model = train(dataset, OPTIONS).model
    with pytest.raises(InputError, match="has other classes than"):
        train(ingest(X, tmp_path / "c.zarr", y + 1), OPTIONS, start_from=model)
    with pytest.raises(InputError, match="features"):
        train(ingest(X[:, 1:], tmp_path / "f.zarr", y), OPTIONS, start_from=model)
    with pytest.raises(InputError, match="start_from is for linear models with the hinge loss"):
        train(dataset, TrainOptions(loss="squared_hinge"), start_from=model)
    with pytest.raises(InputError, match="a ball can be kept only for a linear model of two classes"):
        train_from(dataset, TrainOptions(loss="squared_hinge"), tmp_path / "run", keep_ball=True)
    with pytest.raises(InputError, match="writes the ball to the folder of the run"):
        train_from(dataset, OPTIONS, keep_ball=True)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, append, _ = write(tmp_path / "d.zarr")
    common = [str(tmp_path / "d.zarr"), "--C", "0.01", "--resident-rows", "40%", "--json", "--out"]
    assert main(["train", *common, str(tmp_path / "0"), "--keep-ball"]) == 0
    append()
    assert main(["train", *common, str(tmp_path / "1"), "--start-from", str(tmp_path / "0"), "--keep-ball"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out.splitlines()[-1])
    assert (told["passes"], told["status"], told["n_rows"]) == (0, "converged", N)
    assert "100 new rows were read; the other 5,900 are known from the ball" in captured.err
    assert main(["evaluate", str(tmp_path / "1"), str(tmp_path / "d.zarr")]) == 0
    assert main(["verify", str(tmp_path / "1"), str(tmp_path / "d.zarr")]) == 0
    assert main(["report", str(tmp_path / "1")]) == 0
    assert main(["train", *common, str(tmp_path / "1"), "--start-from", str(tmp_path / "0")]) == 2


def test_a_map_would_be_another_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "d.zarr")
    command = ["train", str(tmp_path / "d.zarr"), "--out", str(tmp_path / "run"), "--map", "nystrom", "--keep-ball"]
    assert main(command) == 2
    assert "need the rows themselves" in capsys.readouterr().err


def test_an_estimator_starts_from_its_last_fit(tmp_path: Path) -> None:
    X, y, _ = make_rows(0)
    dataset = ingest(X, tmp_path / "d.zarr", y)
    named: dict[str, Any] = {"C": 0.01, "solver": CuttingPlane(acceleration="line-search")}
    cold, warm = LinearSVC(**named).fit(dataset), LinearSVC(**named, warm_start=True).fit(dataset)
    assert warm.n_passes_ == cold.n_passes_ > 1
    warm.fit(dataset)
    assert warm.n_passes_ < cold.n_passes_
    assert warm.gap_ <= 1e-3
    assert warm.lower_bound_ <= cold.objective_
    assert cold.lower_bound_ <= warm.objective_
    folder = LinearSVC(**named, warm_start=True, checkpoint=tmp_path / "run").fit(dataset)
    assert folder.fit(dataset).gap_ <= 1e-3  # the folder's run, which has ended
    pairs: dict[str, Any] = {"multi_class": "crammer_singer"}
    three = np.where(X[:, 0] > 1, 2, y)
    for labels, more in ((y, {}), (y, pairs), (three, {}), (y, {"loss": "squared_hinge"}), (-3 * y, {})):
        again = LinearSVC(C=0.01, warm_start=True).fit(X, y).set_params(**more).fit(X, labels)
        assert again.status_ == "converged"


@pytest.mark.parametrize("is_left", [False, True])
def test_a_killed_update_goes_on(is_left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --resume it ends with the bits of an uninterrupted one, whichever way it had gone."""
    dataset, append, _ = write(tmp_path / "d.zarr")
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    X, y, weight = make_rows(3)
    dataset = ingest(-X, tmp_path / "d.zarr", y, sample_weight=weight, append=True) if is_left else append()
    whole = train_from(dataset, OPTIONS, start_from=tmp_path / "0")

    def fail(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        for name in ("train", "update"):  # whichever way it goes
            patch.setattr(f"streamsvm.runs.{name}.write_result", fail)
        with pytest.raises(RuntimeError, match="killed"):
            train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0", keep_ball=True)
    assert (tmp_path / "1" / NAME).exists()  # before the model, with which a run is complete
    for _ in range(2):  # the second time it is complete
        result = train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0", resume=True)
        assert result.model_sha256 == whole.model_sha256
    assert (whole.passes == 0) is not is_left


@pytest.mark.parametrize("what", ["C", "rows", "settings", "checkpoint", "update"])
def test_resume_removes_no_other_run(what: str, tmp_path: Path) -> None:
    """An update goes on in the folder of the same update only; every file of another run stays."""
    dataset, append, _ = write(tmp_path / "d.zarr")
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    dataset, options, out = append(), OPTIONS, tmp_path / "1"
    train_from(dataset, OPTIONS, out, start_from=tmp_path / "0")
    if what == "C":
        options = replace(OPTIONS, C=0.02)
        train_from(dataset.additions[0], options, tmp_path / "0", keep_ball=True, overwrite=True)  # type: ignore[attr-defined]
    elif what == "rows":
        dataset = append()
    elif what == "settings":
        (out / "settings.json").unlink()
    elif what == "checkpoint":
        (out / "checkpoint.npz").unlink()
    before = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}
    with pytest.raises(InputError):
        train_from(dataset, options, out, start_from=None if what == "update" else tmp_path / "0", resume=True)
    assert {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()} == before


def test_a_ball_of_rows_that_are_equally_near_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    random = np.random.default_rng(0)
    X = (random.random((1000, 3)) < 0.5).astype(np.float32)
    y = np.where(X.sum(axis=1) + random.standard_normal(1000) > 1.5, 1, -1)
    options = TrainOptions(threads=1, resident_rows="5%")
    with caplog.at_level(logging.WARNING, "streamsvm"):
        train_from(ingest(X, tmp_path / "d", y), options, tmp_path / "m", keep_ball=True)
    assert "no ball is kept" in caplog.text
    found = train_from(ingest(X[:2], tmp_path / "d", y[:2], append=True), options, start_from=tmp_path / "m")
    assert found.status == "converged"


def test_an_update_whose_ball_is_as_narrow_as_rounding_reads_all_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    X = random.standard_normal((60, 9)).astype(np.float32)
    y = np.where(X[:, 0] + random.standard_normal(60) > 0, 1, -1)
    options = TrainOptions(threads=1, C=1e5, resident_rows="2")
    train_from(ingest(X, tmp_path / "d", y), options, tmp_path / "m", keep_ball=True)
    found = train_from(ingest(X[:3], tmp_path / "d", -y[:3], append=True), options, start_from=tmp_path / "m")
    assert found.status == "converged"
