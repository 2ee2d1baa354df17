"""The arguments of the `streamsvm` command: its parser."""

from __future__ import annotations

import argparse
from typing import Any

import streamsvm
from streamsvm.cli.export import add_export, add_import
from streamsvm.cli.method_help import name_kernels
from streamsvm.cli.parser import Parser
from streamsvm.cli.shared_arguments import (
    SEED,
    add_cache,
    add_cluster,
    add_engine,
    add_gamma,
    add_going_on,
    add_json,
    add_kernel,
    add_memory,
    add_probabilities,
    add_reading,
    add_settings,
)
from streamsvm.cli.table_arguments import add_table
from streamsvm.cli.values import parse_gammas, parse_numbers, read_count, read_local_path, read_place
from streamsvm.cli.warm_up import add_warm_up
from streamsvm.data.formats import FORMATS
from streamsvm.methods.feature_map.options import MAPS

REPLACES_DATASET = "replace a dataset that is there, once the new one is complete"


def make_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="streamsvm", description="Support-vector machines trained on data larger than memory, with a certificate."
    )
    parser.add_argument("--version", action="version", version=f"streamsvm {streamsvm.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        _add_demo,
        _add_ingest,
        _add_delete,
        _add_info,
        _add_features,
        _add_train,
        _add_tune,
        _add_predict,
        _add_evaluate,
        add_export,
        add_import,
        _add_verify,
        _add_report,
        add_warm_up,
    ):
        add(commands)
    parser.commands = commands.choices
    return parser


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="files to certified models, on real and generated data; a minute or two")
    demo.add_argument(
        "--out", metavar="DIR", type=read_local_path, help="keep the files here (default: a temporary folder)"
    )


def _add_ingest(commands: Any) -> None:
    ingest = commands.add_parser("ingest", help="files -> a dataset on disk")
    kinds = f"{', '.join(each.help for each in FORMATS.values())}; -: standard input"
    ingest.add_argument("sources", nargs="+", metavar="SOURCE", help=kinds)
    ingest.add_argument(
        "destination", metavar="DEST.zarr", type=read_place, help="a path, or a URL such as s3://bucket/d.zarr"
    )
    ingest.add_argument("--format", choices=list(FORMATS), help="(default: by the ending)")
    ingest.add_argument("--label", metavar="COLUMN", help="column of a table with the labels (name, or number from 1)")
    ingest.add_argument("--qid", metavar="COLUMN", help="column of a table that holds query ids")
    ingest.add_argument("--sample-weight", metavar="COLUMN", help="column of a table that holds row weights")
    together = "column of a table that tells which rows belong together: `tune` holds out whole groups of them"
    ingest.add_argument("--groups", metavar="COLUMN", help=together)
    bare = "a table may have no column of labels: for `train --task one-class`"
    ingest.add_argument("--unlabelled", action="store_true", help=bare)
    targets = "the labels are numbers to be predicted, and not classes: for `train --task regress`"
    ingest.add_argument("--regression", action="store_true", help=targets)
    lists = "svmlight text has lists of labels, such as 1,3,7, which may be empty: each label is a problem of its own"
    ingest.add_argument("--multi-label", action="store_true", help=lists)
    add_table(ingest)
    layout = ingest.add_mutually_exclusive_group()
    layout.add_argument("--dense", dest="layout", action="store_const", const="dense", help="(default: by density)")
    layout.add_argument("--sparse", dest="layout", action="store_const", const="sparse")
    ingest.add_argument("--chunk-bytes", metavar="SIZE", help="(default: 64MB, less for small data)")
    shards = "size of files of several raw chunks; 0: a file each (default: 256MB if features take 1GB or more)"
    ingest.add_argument("--shard-bytes", metavar="SIZE", help=shards)
    ingest.add_argument("--codec", choices=("crc32c", "lz4", "zstd"), default="crc32c", help="crc32c: raw (default)")
    narrow = "the type in which dense rows are stored, if all values are of it (default: float32)"
    ingest.add_argument("--dtype", choices=("float32", "float16", "bfloat16", "int8"), default="float32", help=narrow)
    scalings = ("none", "minmax", "maxabs", "standard")
    ingest.add_argument("--scale", choices=scalings, default="none", help="recorded, and applied at predict")
    order = "seed of the order in which rows are written; no: as they come (default: 0)"
    ingest.add_argument("--shuffle", metavar="SEED|no", default="0", help=order)
    into = ingest.add_mutually_exclusive_group()
    into.add_argument("--overwrite", action="store_true", help=REPLACES_DATASET)
    added = "add the rows to the dataset DEST.zarr, laid out, scaled and coded as its rows are"
    into.add_argument("--append", action="store_true", help=added)
    going_on = "go on with an ingest on workers that was killed, or whose cluster was lost; anew if nothing is left"
    ingest.add_argument("--resume", action="store_true", help=going_on)
    add_cluster(ingest, "worker processes on this machine that read, shuffle and write (default: threads here)")
    add_memory(ingest)
    add_json(ingest)
    new = "the rows that --append adds may have labels that the dataset does not have"
    ingest.add_argument("--new-classes", action="store_true", help=new)


def _add_delete(commands: Any) -> None:
    about = (
        "Delete rows of a dataset. Whoever opens it from now on skips them; its files keep them until all rows are "
        "ingested anew. `train --start-from` updates a model that kept its ball."
    )
    delete = commands.add_parser("delete", help="a dataset without some of its rows", description=about)
    delete.add_argument("data", metavar="DATA.zarr", type=read_local_path)
    which = delete.add_mutually_exclusive_group(required=True)
    numbers = (
        "numbers and ranges, such as 0-99,250, or a file of them; rows count from 0, in the order in which `predict` "
        "writes the rows of the dataset"
    )
    which.add_argument("--rows", metavar="ROWS|FILE", action="append", help=numbers)
    groups = "all rows of these groups (of `ingest --groups`)"
    which.add_argument("--group", metavar="VALUE", nargs="+", action="extend", help=groups)
    add_json(delete)


def _add_info(commands: Any) -> None:
    info = commands.add_parser("info", help="what a dataset or a model is")
    info.add_argument("data", metavar="DATA.zarr|MODEL", help="a dataset, a run's folder or a model file")
    info.add_argument(
        "--card", action="store_true", help="of a model: data, certificate, measures, limits, in Markdown"
    )
    info.add_argument("--eval", metavar="DATA", help="measure the model on these rows, for its card")
    info.add_argument("--verify", action="store_true", help="read every chunk and check it")
    info.add_argument("--label", metavar="COLUMN", help="column of obs in an AnnData file")
    add_json(info)


def _add_features(commands: Any) -> None:
    features = commands.add_parser(
        "features",
        help="a dataset -> a dataset of features, for linear solvers",
        description="Map every row of a dataset. A model trained on the features carries the map, and takes raw rows. "
        "cholesky reads the rows 11 times, eigen 12, polynomial twice, nystrom once (and once more: --gamma scale).",
    )
    features.add_argument("data", metavar="DATA.zarr")
    features.add_argument("destination", metavar="DEST.zarr", type=read_local_path)
    maps = "polynomial: of second order; the others approximate a kernel (default: cholesky)"
    features.add_argument("--map", choices=MAPS, default=MAPS[0], help=maps)
    features.add_argument("--rank", type=read_count, help="features, for a kernel (default: 300)")
    add_kernel(features, "(default: rbf)", [name for name in name_kernels() if name != "precomputed"])
    add_gamma(features)
    features.add_argument("--seed", type=int, help=SEED)
    add_memory(features)
    add_engine(features)
    add_cache(features)
    features.add_argument("--chunk-bytes", metavar="SIZE", help="(default: 64MB, less for small data)")
    features.add_argument("--label", metavar="COLUMN", help="column of obs in an AnnData file")
    kept = (
        "go on after the last finished pass that looks for the map (what it found is in .DEST.zarr.passes.npz); the "
        "pass that writes the features, and with nystrom all, is begun anew"
    )
    features.add_argument("--resume", action="store_true", help=kept)
    features.add_argument("--overwrite", action="store_true", help=REPLACES_DATASET)
    add_json(features)


def _add_train(commands: Any) -> None:
    train = commands.add_parser("train", help="a dataset -> a certified model")
    train.add_argument("data", metavar="DATA.zarr", help="a dataset, an AnnData file, or a file of rows")
    contents = "folder of the run: settings, history, checkpoint, model"
    train.add_argument("--out", metavar="RUN", type=read_place, help=contents)
    costs = (
        "do not train, but say what it would cost: bytes, seconds and memory of a pass, and how many passes are to be "
        "expected; reads a few chunks and makes no files, so --out is not needed (and not read)"
    )
    train.add_argument("--plan", action="store_true", help=costs)
    train.add_argument("--C", type=float, default=1.0, help="cost of a row, as in LIBSVM and scikit-learn (default: 1)")
    add_gamma(train)
    add_settings(train)
    keeps = (
        "keep the dual point that the lower bound rests on in RUN/dual.npz, for `verify --dual`; for classes with the "
        "hinge loss, and for rankings"
    )
    train.add_argument("--keep-dual", action="store_true", help=keeps)
    start = (
        "start from the weights of a model (a run's folder or a model file) of the same features and classes, to which "
        "the rows may have new ones; if a ball lies beside it, and rows were appended or deleted since, read only "
        "these, unless the new optimum leaves the ball; for linear models with the hinge loss"
    )
    train.add_argument("--start-from", metavar="MODEL", type=read_local_path, help=start)
    ball = (
        "keep in RUN/ball.npz what is known of all rows around the optimum, for --start-from after rows are appended "
        "or deleted; takes one more read, or two if the rows are not shuffled, and as much disk as the resident rows"
    )
    train.add_argument("--keep-ball", action="store_true", help=ball)
    held_out = (
        "measure the model on the rows of another dataset after each step; the measures are in the history, and no row "
        "of the training is read for them"
    )
    train.add_argument("--eval", metavar="DATA.zarr", help=held_out)
    waits = "stop with the status early_stop after so many steps in which the measure of --eval has not risen"
    train.add_argument("--patience", metavar="STEPS", type=read_count, help=waits)
    page = "serve the page of `report` on http://127.0.0.1:PORT/ while the training runs; 0: a port that is free"
    train.add_argument("--live", metavar="PORT", type=int, help=page)
    add_probabilities(train)
    add_going_on(train, "go on from the run's checkpoint, or begin where there is none")


def _add_tune(commands: Any) -> None:
    tune = commands.add_parser(
        "tune",
        help="a grid of settings, cross-validated in shared reads of the data -> the best model",
        description="All fits of the grid and the folds share every read of the data; the best setting is trained on "
        "all rows. Options are those of `train`; --loss, --epsilon, --nu and --class-weight may have several values.",
    )
    tune.add_argument("data", metavar="DATA.zarr", help="a dataset, an AnnData file, or a file of rows")
    contents = "folder of the best setting's run; tuning.json and tuning.html beside its files"
    tune.add_argument("--out", metavar="RUN", type=read_local_path, required=True, help=contents)
    costs = "costs of a row to try; tasks in which nu takes the place of C have none"
    tune.add_argument("--C", metavar="C,C,..", type=parse_numbers, default=(), help=costs)
    gammas = "to try, of the kernels rbf, poly and sigmoid (default: scale)"
    tune.add_argument("--gamma", metavar="scale|auto|GAMMA,..", type=parse_gammas, default=(), help=gammas)
    tune.add_argument("--folds", type=read_count, default=5, help="parts of the rows for cross-validation (default: 5)")
    columns = "column of obs in an AnnData file that tells which rows are held out together; others store their groups"
    tune.add_argument("--groups", metavar="COLUMN", help=columns)
    ordered = "cut the groups in their order, and hold out only what comes after the rows that a fit is trained on"
    tune.add_argument("--forward", action="store_true", help=ordered)
    add_probabilities(tune)
    add_settings(tune, several=True)
    kept = "go on from the last checkpoint of every fit; they are in RUN/grid, which may be removed once all is done"
    add_going_on(tune, kept)


def _add_predict(commands: Any) -> None:
    predict = commands.add_parser("predict", help="a model and rows -> predictions")
    predict.add_argument("model", metavar="MODEL", help="a run's folder or a model file")
    predict.add_argument("data", metavar="DATA", help="a dataset, or any file that ingest reads; -: standard input")
    kinds = ".csv, .parquet, .npy or .zarr; -: CSV on standard output"
    predict.add_argument("--out", metavar="FILE", type=read_local_path, required=True, help=kinds)
    predict.add_argument("--overwrite", action="store_true", help="replace a .zarr that is there (files are, anyway)")
    with_them = "add the probability of each class; for models trained with --probabilities, or --loss logistic"
    predict.add_argument("--probabilities", action="store_true", help=with_them)
    most = "write the K labels with the highest scores of each row, and these scores; for more than two classes"
    predict.add_argument("--top", metavar="K", type=read_count, help=most)
    known = predict.add_mutually_exclusive_group()
    names = "column of a table whose texts name the rows of the predictions (default: the --index of ingest)"
    known.add_argument("--id", "--index", metavar="COLUMN", dest="id", help=names)
    known.add_argument("--row-numbers", action="store_true", help="number the rows, from 0, as `delete --rows` does")
    some = "write these columns only, in this order: row, name, label, score, probability, or one such as 'score a'"
    predict.add_argument("--columns", metavar="COLUMN,..", action="append", default=[], help=some)
    add_reading(predict)
    add_json(predict)


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser("evaluate", help="accuracy, ROC area, swapped pairs, NDCG of a model")
    evaluate.add_argument("model", metavar="MODEL", help="a run's folder or a model file")
    evaluate.add_argument("data", metavar="DATA", help="a dataset, or any file that ingest reads")
    add_reading(evaluate)
    evaluate.add_argument("--qid", metavar="COLUMN", help="column of the query ids (of a ranking)")
    add_json(evaluate)
    points = "with --json: points of the ROC curve and of precision and recall as well, of two classes"
    evaluate.add_argument("--curves", action="store_true", help=points)


def _add_verify(commands: Any) -> None:
    about = (
        "Compute the objective of a model anew, in one read of the rows that it was trained on, and on request the "
        "lower bound. Exit status: 0 if they are what the model tells, rounding aside, 1 if not, 2 if they cannot be "
        "computed."
    )
    verify = commands.add_parser("verify", help="objective of a model, computed anew", description=about)
    verify.add_argument("model", metavar="MODEL", help="a run's folder or a model file")
    verify.add_argument("data", metavar="DATA", help="the dataset that it was trained on")
    bound = "the lower bound, too: from a kernel model's coefficients, or from what `train --keep-dual` kept beside it"
    verify.add_argument("--dual", action="store_true", help=bound)
    verify.add_argument("--label", metavar="COLUMN", help="column of obs in an AnnData file")
    add_memory(verify)
    verify.add_argument("--threads", metavar="N", type=read_count, help="(default: all cores)")
    add_json(verify)


def _add_report(commands: Any) -> None:
    report = commands.add_parser("report", help="one page of runs: gap, costs, memory, measures, weights, settings")
    report.add_argument("runs", metavar="RUN", nargs="+", type=read_local_path, help="folders of train or tune")
    where = "(default: report.html in the folder of a single run)"
    report.add_argument("--out", metavar="FILE.html", type=read_local_path, help=where)
    measured = "labelled rows (a dataset, or any file that ingest reads): adds curves, confusion matrix, reliability"
    report.add_argument("--eval", metavar="DATA", help=measured)
    add_reading(report)
    add_json(report)


def how_to_read(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `add_reading`, which say how a file is read, under the names that the readers take."""
    return {"file_format": options.format, **{k: getattr(options, k) for k in ("label", "header", "sep", "decimal")}}
