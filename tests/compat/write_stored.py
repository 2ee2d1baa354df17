"""Write datasets, models and run folders with an older checkout, and what that checkout says of them, into an archive.

    PYTHONPATH=CHECKOUT OMP_NUM_THREADS=1 python tests/compat/write_stored.py ARCHIVE.tar.xz

test_stored.py asks the present code the same questions about the same files, by the functions of this module. They use
the command line and public names of the package only, so that they work with either code.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import shutil
import signal
import sys
import tarfile
import tempfile
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import streamsvm

N_ROWS = 60
N_TOLD = 12  # rows whose predictions are recorded
DATASETS = """
two        two.svm        --chunk-bytes 400
shards     two.svm        --chunk-bytes 400 --shard-bytes 1KB
sparse     sparse.svm     --sparse --chunk-bytes 400
zstd       two.svm        --codec zstd
lz4        two.svm        --codec lz4 --shuffle no
float16    two.svm        --dtype float16
bfloat16   two.svm        --dtype bfloat16
int8       whole.svm      --dtype int8
minmax     two.svm        --scale minmax
maxabs     sparse.svm     --scale maxabs
scaled     two.svm        --scale standard --chunk-bytes 400
three      three.csv      --label kind
weighed    weighed.csv    --label kind --sample-weight weight
grouped    weighed.csv    --label kind --groups query --drop weight
ranked     weighed.csv    --label rank --qid query --drop kind,weight
queries    queries.svm
numbers    numbers.svm    --regression
novel      novel.csv      --unlabelled
labels     labels.svm     --multi-label
table      table.csv      --label kind --one-hot colour --hash 3 --missing indicator --index name
dated      table.csv      --label kind --one-hot auto --drop name,word --missing zero
gram       gram.svm       --shuffle no --dense
appended   two.svm        --chunk-bytes 400
grown      three.csv      --label kind
deleted    two.svm        --chunk-bytes 400
followed   two.svm
"""
EDITS = """
ingest more.svm appended.zarr --append
ingest other.csv grown.zarr --label kind --append --new-classes
delete deleted.zarr --rows 3,20-29
ingest more.svm deleted.zarr --append
features two.zarr cholesky.zarr --map cholesky --rank 8 --gamma 0.2
features two.zarr eigen.zarr --map eigen --rank 8 --gamma 0.2
features two.zarr nystrom.zarr --map nystrom --rank 8 --gamma scale
features scaled.zarr polynomial.zarr --map polynomial
train two.svm --out cached
"""
# A name, a dataset, the passes after which a second run of the kind is stopped (-: no such run), and the arguments.
RUNS = """
hinge-one-read       two       1  --C 1 --tol 1e-9 --resident-rows 20%
hinge-block-ascent   two       1  --C 100 --tol 1e-9 --option acceleration=block-ascent
hinge-line-search    two       2  --C 1 --tol 1e-7 --option acceleration=line-search
hinge-plain          two       2  --C 1 --tol 1e-4 --option acceleration=none
hinge-sparse         sparse    1  --C 10 --tol 1e-9 --resident-rows 20%
hinge-scaled         scaled    2  --C 1 --tol 1e-7 --option acceleration=line-search
hinge-shards         shards    2  --C 1 --tol 1e-7 --option acceleration=line-search
hinge-compressed     zstd      2  --C 1 --tol 1e-7 --option acceleration=line-search
hinge-half           float16   -  --C 1
hinge-bytes          int8      -  --C 0.1
hinge-dual           two       2  --C 1 --tol 1e-7 --option acceleration=line-search --keep-dual
hinge-weights        weighed   2  --C 1 --tol 1e-7 --option acceleration=line-search --class-weight a=2,b=1
hinge-balanced       three     2  --C 1 --tol 1e-7 --option acceleration=line-search --class-weight balanced
hinge-three          three     1  --C 1 --tol 1e-9 --resident-rows 20%
hinge-labels         labels    2  --C 1 --tol 1e-7 --option acceleration=line-search
hinge-table          table     2  --C 1 --tol 1e-7 --option acceleration=line-search
hinge-dated          dated     -  --C 1
hinge-appended       appended  2  --C 1 --tol 1e-7 --option acceleration=line-search
hinge-grown          grown     -  --C 1
hinge-deleted        deleted   2  --C 1 --tol 1e-7 --option acceleration=line-search
hinge-features       cholesky  2  --C 1 --tol 1e-7 --option acceleration=line-search
hinge-eigen          eigen     -  --C 1
hinge-polynomial     polynomial -  --C 1
hinge-map            two       2  --C 1 --tol 1e-7 --map cholesky --rank 8 --gamma 0.2 --option acceleration=line-search
hinge-nystrom        two       -  --C 1 --map nystrom --rank 8
hinge-eval           two       2  --C 1 --tol 1e-7 --option acceleration=line-search --eval minmax.zarr --patience 90
hinge-ball           followed  -  --C 0.05 --keep-ball
hinge-sigmoid        two       2  --C 1 --tol 1e-7 --option acceleration=line-search --probabilities sigmoid
hinge-isotonic       labels    -  --C 1 --probabilities isotonic
hinge-temperature    three     -  --C 1 --probabilities temperature
interior-point       two       2  --solver interior-point --tol 1e-8
interior-dual        two       -  --solver interior-point --tol 1e-8 --keep-dual
interior-three       three     2  --solver interior-point --tol 1e-8
squared              two       1  --loss squared_hinge --tol 1e-9 --resident-rows 20%
squared-three        three     1  --loss squared_hinge --tol 1e-9 --resident-rows 20%
squared-labels       labels    1  --loss squared_hinge --tol 1e-9 --option sample_rows=10
logistic             two       1  --loss logistic --tol 1e-9 --resident-rows 20%
logistic-sparse      sparse    1  --loss logistic --tol 1e-9 --resident-rows 20%
logistic-labels      labels    1  --loss logistic --tol 1e-9 --option sample_rows=10
logistic-l1          two       1  --loss logistic --penalty l1 --tol 1e-9 --resident-rows 20%
squared-l1           three     1  --loss squared_hinge --penalty l1 --tol 1e-9 --resident-rows 20%
joint                three     1  --multi-class crammer_singer --C 100 --tol 1e-9 --option acceleration=block-ascent
joint-line-search    three     2  --multi-class crammer_singer --tol 1e-5 --option acceleration=line-search
joint-kernel         three     1  --multi-class crammer_singer --kernel rbf --tol 1e-7 --resident-rows 20%
tube                 numbers   1  --task regress --tol 1e-9 --resident-rows 20%
tube-cuts            numbers   2  --task regress --solver cutting-plane --tol 1e-5
tube-squared         numbers   1  --task regress --loss squared_epsilon_insensitive --tol 1e-9 --resident-rows 20%
tube-kernel          numbers   1  --task regress --kernel rbf --tol 1e-7 --resident-rows 20%
tube-budget          numbers   1  --task regress --solver budgeted-sgd --option budget=9 --option epochs=3
tube-nu              numbers   1  --task nu-regress --kernel rbf --tol 1e-7 --resident-rows 40%
kernel-rbf           two       1  --kernel rbf --tol 1e-7 --resident-rows 20%
kernel-poly          sparse    1  --kernel poly --degree 2 --coef0 1 --tol 1e-7 --resident-rows 20%
kernel-linear        scaled    1  --solver smo --kernel linear --tol 1e-6 --resident-rows 30%
kernel-sigmoid       two       1  --kernel sigmoid --gamma 0.01 --resident-rows 20%
kernel-given         gram      1  --kernel precomputed --resident-rows 20%
kernel-pairs         three     1  --kernel rbf --tol 1e-7 --resident-rows 20%
kernel-rest          three     1  --kernel rbf --multi-class ovr --tol 1e-7 --resident-rows 20%
kernel-platt         two       1  --kernel rbf --tol 1e-7 --option selection=platt
kernel-random        two       1  --kernel rbf --tol 1e-7 --resident-rows 20% --option selection=random
kernel-chunking      two       1  --kernel rbf --tol 1e-7 --resident-rows 50% --option selection=chunking
kernel-irwls         two       1  --solver irwls --kernel rbf --tol 1e-6 --resident-rows 20%
kernel-weights       weighed   1  --kernel rbf --tol 1e-7 --resident-rows 20% --class-weight a=2,b=1
kernel-sigmoids      three     1  --kernel rbf --tol 1e-7 --resident-rows 20% --probabilities sigmoid
kernel-nu            two       1  --task nu-classify --kernel rbf --nu 0.3 --tol 1e-7 --resident-rows 40%
kernel-nu-pairs      three     -  --task nu-classify --kernel rbf --nu 0.2
one-class            novel     1  --task one-class --kernel rbf --nu 0.2 --tol 1e-7 --resident-rows 40%
one-class-linear     two       1  --task one-class --solver cutting-plane --nu 0.2 --tol 1e-9 --resident-rows 20%
budget-merge         two       1  --solver budgeted-sgd --option budget=9 --option epochs=3
budget-gradient      three     1  --solver budgeted-sgd --option budget=9 --option epochs=2 --option maintenance=gradient-merge --option merge=3
budget-projection    two       1  --solver budgeted-sgd --option budget=9 --option epochs=2 --option maintenance=projection
budget-removal       sparse    1  --solver budgeted-sgd --option budget=9 --option epochs=2 --option maintenance=removal
budget-average       scaled    1  --solver budgeted-sgd --option budget=9 --option epochs=2 --option replicas=2 --option bias=free
rank                 ranked    2  --task rank --tol 1e-5
rank-queries         queries   2  --task rank --tol 1e-5 --option acceleration=none
rank-dual            queries   -  --task rank --keep-dual
rank-two             sparse    2  --task rank --tol 1e-5
rank-roc-area        two       2  --task roc-area --tol 1e-5
"""  # noqa: E501
# A name, the file whose n-th opening or renaming is followed by Ctrl-C, n, and the command, whose result is `out`.
INTERRUPTED = """
grid-ended     open       never-opened    1  tune two.zarr --out OUT --C 0.1,1 --folds 3 --tol 1e-6 LINES
map            os.rename  map.npz         3  train two.zarr --out OUT --map cholesky --rank 8 --gamma 0.2 --C 1
folds          open       history.jsonl   9  train two.zarr --out OUT --C 1 --tol 1e-7 LINES --probabilities sigmoid
grid           open       history.jsonl   9  tune two.zarr --out OUT --C 0.1,1 --folds 3 --tol 1e-6 LINES
grid-sigmoid   open       history.jsonl  12  tune two.zarr --out OUT --C 0.1,1 --folds 3 --tol 1e-6 LINES --probabilities sigmoid
grid-map       open       history.jsonl   9  tune two.zarr --out OUT --C 0.1,1 --folds 3 --tol 1e-6 LINES --map cholesky --rank 8 --gamma 0.2
grid-kernel    open       history.jsonl   9  tune three.zarr --out OUT --C 0.1,1 --folds 2 --tol 1e-6 --kernel rbf --resident-rows 20%
features       os.rename  .passes.npz     3  features two.zarr OUT --map cholesky --rank 8 --gamma 0.2
"""  # noqa: E501
# Estimators with a checkpoint, which are stopped after a pass: class, the labels of the rows, parameters. A solver is
# named with its options, which older code took beside the other parameters.
OLDER_SOLVERS = {"CuttingPlane": {}, "InteriorPoint": {"solver": "interior-point"}}
OLDER_NAMES = {"n_components": "rank"}
FITS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "fit-linear": ("LinearSVC", "two", {"tol": 1e-7, "solver": ("CuttingPlane", {"acceleration": "line-search"})}),
    "fit-logistic": ("LogisticRegression", "two", {"tol": 1e-9, "resident_rows": "20%"}),
    "fit-regression": ("LinearSVR", "numbers", {"tol": 1e-9, "resident_rows": "20%"}),
    "fit-kernel": ("SVC", "three", {"tol": 1e-7, "resident_rows": "20%"}),
    "fit-kernel-regression": ("SVR", "numbers", {"tol": 1e-7, "resident_rows": "20%"}),
    "fit-low-rank": (
        "SVC",
        "two",
        {
            "solver": ("InteriorPoint", {"approximation": "cholesky", "n_components": 8}),
            "gamma": 0.2,
            "tol": 1e-8,
        },
    ),
    "fit-budget": ("BudgetedSVC", "two", {"budget": 9, "epochs": 3}),
}
TOLD_OF_A_RUN = ("status", "objective", "lower_bound", "rounding_bound", "passes", "steps", "n_support_vectors")


def split_lines(text: str, n_words: int) -> dict[str, list[str]]:
    """Return the words of each line by the first one; after so many words the rest of a line is one."""
    lines = (line.split(maxsplit=n_words) for line in text.strip().splitlines())
    return {first: [*rest, *[""] * (n_words - len(rest))] for first, *rest in lines}


def call(*arguments: object) -> tuple[int, str, str]:
    """Carry a command out in this process; return its exit status, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    argv, status = ["streamsvm", *map(str, arguments)], 0
    silent = warnings.catch_warnings(), patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err)
    with silent[0], silent[1], silent[2], silent[3]:
        warnings.filterwarnings("ignore", module="runpy")  # which warns if __main__ was imported before
        try:
            runpy.run_module("streamsvm", run_name="__main__")
        except SystemExit as ended:
            status = int(ended.code or 0)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return status, out.getvalue(), err.getvalue()


def do(*arguments: object) -> dict[str, Any]:
    """Carry a command out, and return the object that it prints. RuntimeError if it fails; a limit is no failure."""
    status, out, err = call(*arguments, "--json")
    if status not in (0, 3):
        raise RuntimeError(f"{' '.join(map(str, arguments))}: exit status {status}: {err}")
    found: dict[str, Any] = json.loads(out.splitlines()[-1]) if out else {}
    return found


class Interruption:
    """Ctrl-C for this process when an audit event has named files with an ending so many times."""

    def __init__(self) -> None:
        self.event, self.ending, self.left = "", "", 0
        sys.addaudithook(self._hear)

    def prepare(self, event: str, ending: str, count: int) -> None:
        """Wait for an event; 0 for no more."""
        self.event, self.ending, self.left = event, ending, count

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left and event == self.event and str(arguments[event == "os.rename"]).endswith(self.ending):
            self.left -= 1
            if not self.left:
                signal.raise_signal(signal.SIGINT)


def write_sources(folder: Path) -> None:
    """Write the files that are ingested. Values are multiples of 1/8, which all types of rows can hold."""
    random = np.random.default_rng(0)
    X = np.round(random.normal(size=(N_ROWS + 10, 4)) * 8) / 8
    score = X @ [1.0, -2.0, 0.5, 0.0] + random.normal(size=len(X))
    sparse = np.where(random.random(X.shape) < 0.4, X, 0.0)
    two, three, rank = np.where(score > 0, 1, -1), np.digitize(score, (-1, 1)), np.digitize(score, (-1.5, 0, 1.5))
    sets = [",".join(str(k + 1) for k in range(3) if x[k] > 0.2) for x in X]
    first, last = slice(0, N_ROWS), slice(N_ROWS, None)
    write_svmlight(folder / "two.svm", two[first], X[first])
    write_svmlight(folder / "more.svm", two[last], X[last])
    write_svmlight(folder / "sparse.svm", two[first], sparse[first])
    write_svmlight(folder / "whole.svm", two[first], np.round(X[first]))
    write_svmlight(folder / "numbers.svm", np.round(score[first] * 8) / 8, X[first])
    write_svmlight(folder / "labels.svm", sets[:N_ROWS], X[first])
    queries = [f"{label} qid:{i // 6}" for i, label in enumerate(rank[first])]
    write_svmlight(folder / "queries.svm", queries, X[first])
    gram = np.exp(-0.2 * ((X[first, None] - X[None, first]) ** 2).sum(axis=2))
    write_svmlight(folder / "gram.svm", two[first], gram)
    names = np.array(["low", "mid", "high"])[three]
    write_csv(folder / "three.csv", "kind,a,b,c,d", names[first], X[first])
    write_csv(folder / "other.csv", "kind,a,b,c,d", ["rare"] * 10, X[last])
    write_csv(folder / "novel.csv", "a,b,c,d", X[first])
    kinds, weights = np.where(two > 0, "a", "b"), random.integers(1, 4, len(X)) / 2
    numbers = np.arange(N_ROWS)
    columns = (kinds[first], weights[first], rank[first], numbers // 6)
    write_csv(folder / "weighed.csv", "kind,weight,rank,query,a,b,c,d", *columns, X[first])
    colours, words = np.array(["red", "green", "blue"])[three], [f"w{i % 7}" for i in numbers]
    days = [f"2026-01-{i % 28 + 1:02}" for i in numbers]
    gaps = ["" if i % 9 == 4 else value for i, value in enumerate(X[first, 0])]
    table = (kinds[first], [f"n{i}" for i in numbers], colours[first], words, days, gaps)
    write_csv(folder / "table.csv", "kind,name,colour,word,day,gap,b,c,d", *table, X[first, 1:])
    y = {"two": two[first], "three": names[first], "numbers": score[first]}
    np.savez(folder / "rows.npz", X=X[first], **y)  # type: ignore[arg-type]


def write_svmlight(path: Path, labels: Any, X: Any) -> None:
    """Write rows as svmlight text, without the values that are 0."""
    rows = (" ".join(f"{j + 1}:{value!r}" for j, value in enumerate(x) if value) for x in X.tolist())
    path.write_text("".join(f"{label} {row}\n" for label, row in zip(labels, rows, strict=True)))


def write_csv(path: Path, header: str, *columns: Any) -> None:
    """Write columns, of which the last are those of a matrix, as CSV."""
    *vectors, X = columns
    rows = [[*map(str, first), *map(repr, x)] for *first, x in zip(*vectors, X.tolist(), strict=True)]
    path.write_text("".join(",".join(row) + "\n" for row in [[header], *rows]))


def list_datasets() -> list[str]:
    """Return the names of the datasets that are ingested, mapped, or made by `train FILE`."""
    edits = [line.split() for line in EDITS.strip().splitlines()]
    mapped = [words[2].removesuffix(".zarr") for words in edits if words[0] == "features"]
    return [*split_lines(DATASETS, 2), *mapped, "two.svm.cache"]


def write_datasets() -> None:
    """Ingest the sources, and edit or map some of the datasets."""
    for name, (source, options) in split_lines(DATASETS, 2).items():
        do("ingest", source, f"{name}.zarr", *options.split())
    for line in EDITS.strip().splitlines():
        do(*line.split())


def tell_dataset(name: str) -> dict[str, Any]:
    """Return what `info --verify` says of a dataset."""
    return do("info", f"{name}.zarr", "--verify")


def load_rows() -> dict[str, Any]:
    """Return the rows and their labels as arrays."""
    with np.load("rows.npz") as arrays:
        return dict(arrays)


def tell_model(model: Path, data: str) -> dict[str, Any]:
    """Return what a model says of some rows, of its dataset and, if it has four features, as they were."""
    estimator: Any = streamsvm.load(model)
    given: dict[str, Any] = {"stored": f"{data}.zarr"}
    if estimator.n_features_in_ == 4:
        given["raw"] = load_rows()["X"]
    if data == "table":
        given["file"] = "table.csv"
    told: dict[str, Any] = {"estimator": type(estimator).__name__}
    methods = [name for name in ("predict", "decision_function", "predict_proba") if hasattr(estimator, name)]
    for name, rows in given.items():
        answers = {f"{method} {name}": np.asarray(getattr(estimator, method)(rows)) for method in methods}
        told |= {what: values[:N_TOLD].tolist() for what, values in answers.items()}
    return told


def tell_run(result: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a result that is recorded."""
    return {name: result.get(name) for name in TOLD_OF_A_RUN}


def verify(run: Path, data: str) -> dict[str, Any] | None:
    """Return what `verify` says of a run, with the lower bound where it can be computed; None if it is refused."""
    for more in (["--dual"], []):
        status, out, _ = call("verify", run, f"{data}.zarr", "--json", *more)
        if status in (0, 1):
            found: dict[str, Any] = json.loads(out.splitlines()[-1])
            return {"dual": bool(more), **found}
    return None


def tell_arithmetic(out: str) -> Any:
    """Return what the last bits of results depend on, as a training tells it."""
    return do("train", "two.zarr", "--out", out)["arithmetic"]


def write_run(name: str, data: str, passes: str, options: str) -> dict[str, Any]:
    """Train to the end, and stop a second training, which is then gone on with in a copy."""
    given = [f"{data}.zarr", *options.split()]
    run, stopped, resumed = Path("runs", name), Path("stopped", name), Path("resumed", name)
    told: dict[str, Any] = {"ended": tell_run(do("train", *given, "--out", run))}
    told["model"], told["verified"] = tell_model(run, data), verify(run, data)
    if passes != "-":
        told["stopped"] = tell_run(do("train", *given, "--out", stopped, "--max-passes", passes))
        told["resumed"] = go_on(stopped, resumed, ["train", *given, "--out", resumed], data)
        n_steps = told["resumed"].get("steps")
        print(f"{name}: {told['stopped']['status']} after {told['stopped']['steps']} of {n_steps} steps", flush=True)
    return told


def go_on(stopped: Path, resumed: Path, command: list[str], data: str) -> dict[str, Any]:
    """Resume a copy of a run, and return what came of it."""
    resumed.parent.mkdir(exist_ok=True)
    shutil.copytree(stopped, resumed)
    try:
        result = do(*command, "--resume")
    except RuntimeError as error:  # a fault of the older code
        return {"error": str(error)}
    return {**tell_run(result), "model": tell_model(resumed, data)}


def interrupt(name: str, event: str, ending: str, count: str, command: str, interruption: Interruption) -> Any:
    """Interrupt a command, and go on with it in a copy."""
    stopped, resumed = Path("stopped", name), Path("resumed", name)
    stopped.mkdir(parents=True)
    interruption.prepare(event, ending, int(count))
    status, _, err = call(*fill_in(command, stopped / "out"), "--json")
    interruption.prepare("", "", 0)
    kept = sorted(path.name for path in stopped.rglob("*") if path.is_file())
    print(f"{name}: exit status {status}, {len(kept)} files, {err.splitlines()[-1:]}", flush=True)
    shutil.copytree(stopped, resumed)
    return tell_result(do(*fill_in(command, resumed / "out"), "--resume"))


def fill_in(command: str, out: Path) -> list[str]:
    """Return the arguments of an interrupted command."""
    options = {"OUT": [str(out)], "LINES": ["--option", "acceleration=line-search"]}
    return [argument for word in command.split() for argument in options.get(word, [word])]


def tell_result(result: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded of a training, a grid or a feature map."""
    trials = [{name: one[name] for name in ("C", "scores", "passes")} for one in result.get("trials", ())]
    return {**tell_run(result), "trials": trials, "map_sha256": result.get("map_sha256")}


def name_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as the code at hand names them."""
    named = dict(parameters)
    if "solver" in parameters:
        solver, options = named.pop("solver")
        if hasattr(streamsvm, solver):
            named["solver"] = getattr(streamsvm, solver)(**options)
        else:
            named |= OLDER_SOLVERS[solver] | {OLDER_NAMES.get(key, key): value for key, value in options.items()}
    return named


def write_fit(name: str, folder: str = "stopped") -> dict[str, Any]:
    """Fit an estimator with a checkpoint; below `stopped` one pass at most."""
    kind, labels, parameters = FITS[name]
    rows, limit = load_rows(), {"max_passes": 1} if folder == "stopped" else {}
    estimator = getattr(streamsvm, kind)(**name_parameters(parameters), **limit, checkpoint=Path(folder, name))
    estimator.fit(rows["X"], rows[labels])
    predicted = estimator.predict(rows["X"])[:N_TOLD].tolist()
    return {**tell_run(estimator.result_.as_json()), "predicted": predicted}


def go_on_fitting(name: str) -> dict[str, Any]:
    """Stop a fit, and go on with it in a copy."""
    stopped = write_fit(name)
    print(f"{name}: {stopped['status']} after {stopped['steps']} steps", flush=True)
    shutil.copytree(Path("stopped", name), Path("resumed", name))
    return write_fit(name, "resumed")


def update() -> dict[str, Any]:
    """Append rows, and update the model that kept its ball."""
    shutil.copytree("followed.zarr", "resumed/followed.zarr")
    do("ingest", "more.svm", "resumed/followed.zarr", "--append")
    command = "train resumed/followed.zarr --out resumed/ball --C 0.05 --start-from runs/hinge-ball"
    return tell_run(do(*command.split()))


def main() -> int:
    """Write everything into a folder, and pack it."""
    archive = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as folder, chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_sources(Path())
        write_datasets()
        told: dict[str, Any] = {"datasets": {name: tell_dataset(name) for name in list_datasets()}}
        told["runs"] = {name: write_run(name, *run) for name, run in split_lines(RUNS, 3).items()}
        interruption = Interruption()
        lines = split_lines(INTERRUPTED, 4)
        told["interrupted"] = {name: interrupt(name, *words, interruption) for name, words in lines.items()}
        told["fits"] = {name: go_on_fitting(name) for name in FITS}
        told["updated"] = update()
        told["arithmetic"] = tell_arithmetic("resumed/arithmetic")
        Path("told.json").write_text(json.dumps(told, indent=0) + "\n")
        with tarfile.open(archive, "w:xz", preset=9) as file:
            for path in sorted(Path().iterdir()):
                if path.name != "resumed":
                    file.add(path)
    print(f"{archive}: {os.path.getsize(archive):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
