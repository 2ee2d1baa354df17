"""The `streamsvm` command. Progress goes to standard error, results to standard output.

Exit status: 0 converged or done, 3 stopped by a limit (the model is written all the same), 2 bad input or arguments,
1 anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import streamsvm
from streamsvm.errors import InputError

STATUS_CODES = {"converged": 0, "pass_limit": 3, "time_limit": 3, "stalled": 3, "interrupted": 1}
NOT_BUILT = {
    "smo": "kernel SVMs", "irwls": "kernel SVMs", "budgeted-sgd": "budgeted SGD", "interior-point": "interior point",
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    options = make_parser().parse_args(arguments)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except InputError as error:
        print(f"streamsvm {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"streamsvm {options.command}: interrupted; nothing was left behind", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="streamsvm", description="Support-vector machines trained on data larger than memory, with a certificate."
    )
    parser.add_argument("--version", action="version", version=f"streamsvm {streamsvm.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (_add_demo, _add_ingest, _add_info, _add_train, _add_predict, _add_evaluate):
        add(commands)
    return parser


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="ingest, train and evaluate real and generated data; under a minute")
    demo.add_argument("--out", metavar="DIR", type=Path, help="keep the files here (default: a passing folder)")
    demo.set_defaults(run=_demo)


def _add_ingest(commands: Any) -> None:
    ingest = commands.add_parser("ingest", help="files -> a dataset on disk")
    ingest.add_argument("sources", nargs="+", metavar="SOURCE", help="svmlight text, CSV, TSV, Parquet, .npy, .npz; -: standard input")
    ingest.add_argument("destination", metavar="DEST.zarr", type=Path)
    ingest.add_argument("--format", choices=("svmlight", "csv", "parquet", "npy"), help="(default: by the ending)")
    ingest.add_argument("--label", metavar="COLUMN", help="column of a table that holds the labels (name, or number from 1)")
    ingest.add_argument("--qid", metavar="COLUMN", help="column of a table that holds query ids")
    ingest.add_argument("--sample-weight", metavar="COLUMN", help="column of a table that holds row weights")
    layout = ingest.add_mutually_exclusive_group()
    layout.add_argument("--dense", dest="layout", action="store_const", const="dense", help="(default: by density)")
    layout.add_argument("--sparse", dest="layout", action="store_const", const="sparse")
    ingest.add_argument("--chunk-bytes", metavar="SIZE", help="(default: 64MB, less for small data)")
    ingest.add_argument("--codec", choices=("crc32c", "lz4", "zstd"), default="crc32c")
    ingest.add_argument("--scale", choices=("none", "minmax", "maxabs", "standard"), default="none", help="recorded, and applied at predict")
    ingest.add_argument("--shuffle", metavar="SEED|no", default="0")
    ingest.set_defaults(run=_ingest)


def _add_info(commands: Any) -> None:
    info = commands.add_parser("info", help="shape, classes, chunks and bytes of a dataset")
    info.add_argument("data", metavar="DATA.zarr")
    info.add_argument("--verify", action="store_true", help="read every chunk and check it")
    info.add_argument("--label", metavar="COLUMN", help="column of obs in an AnnData file")
    info.add_argument("--json", action="store_true")
    info.set_defaults(run=_info)


def _add_train(commands: Any) -> None:
    train = commands.add_parser("train", help="a dataset -> a certified model")
    train.add_argument("data", metavar="DATA.zarr")
    train.add_argument("--out", metavar="RUN", type=Path, required=True, help="folder of the run: settings, history, checkpoint, model")
    train.add_argument("--solver", default="cutting-plane", choices=("cutting-plane", *NOT_BUILT))
    train.add_argument("--C", type=float, default=1.0, help="cost a row, as in LIBSVM and scikit-learn (default: 1)")
    train.add_argument("--class-weight", metavar="balanced|a=2,b=1")
    train.add_argument("--tol", type=float, default=1e-3, help="relative duality gap to reach (default: 1e-3)")
    train.add_argument("--memory", metavar="SIZE", help="for the whole of one process, and each worker (default: half of the machine's)")
    train.add_argument("--threads", type=_count, help="(default: all cores, or 1 in a worker)")
    train.add_argument("--workers", metavar="N|auto", help="worker processes on this machine (default: threads in this one)")
    train.add_argument("--scheduler", metavar="tcp://...", help="address of an existing Dask cluster")
    train.add_argument("--label", metavar="COLUMN", help="column of obs in an AnnData file")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--max-passes", type=_count)
    train.add_argument("--max-seconds", type=float)
    train.add_argument("--resume", action="store_true", help="go on from the run's checkpoint")
    train.add_argument("--option", metavar="NAME=VALUE", action="append", default=[], help="acceleration=line-search|none, epsilon, intercept_scaling, max_cuts")
    train.add_argument("--json", action="store_true")
    train.set_defaults(run=_train)


def _add_predict(commands: Any) -> None:
    predict = commands.add_parser("predict", help="a model and rows -> predictions")
    predict.add_argument("model", metavar="MODEL", help="a run's folder or a model file")
    predict.add_argument("data", metavar="DATA", help="a dataset, or any file that ingest reads")
    predict.add_argument("--out", metavar="FILE", type=Path, required=True, help=".csv, .npy or .zarr")
    _add_reading(predict)
    predict.set_defaults(run=_predict)


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser("evaluate", help="accuracy and ROC area of a model on labelled rows")
    evaluate.add_argument("model", metavar="MODEL", help="a run's folder or a model file")
    evaluate.add_argument("data", metavar="DATA", help="a dataset, or any file that ingest reads")
    _add_reading(evaluate)
    evaluate.add_argument("--json", action="store_true")
    evaluate.set_defaults(run=_evaluate)


def _add_reading(command: argparse.ArgumentParser) -> None:
    command.add_argument("--format", choices=("svmlight", "csv", "parquet", "npy"), help="(default: by the ending)")
    command.add_argument("--label", metavar="COLUMN", help="column of the labels")


def _demo(options: argparse.Namespace) -> int:
    from streamsvm.demo import run_demo

    return run_demo(options.out)


def _ingest(options: argparse.Namespace) -> int:
    from streamsvm.data.sources import ingest
    from streamsvm.data.ingest import IngestOptions
    from streamsvm.data.tables import Columns
    from streamsvm.machine import format_bytes, parse_bytes

    began = time.monotonic()
    shown = _RowCounter()
    dataset = ingest(
        options.sources,
        options.destination,
        file_format=options.format,
        columns=Columns(label=options.label, qid=options.qid, sample_weight=options.sample_weight),
        options=IngestOptions(
            layout=options.layout,
            chunk_bytes=None if options.chunk_bytes is None else parse_bytes(options.chunk_bytes),
            codec=options.codec,
            scale=options.scale,
            shuffle=_parse_shuffle(options.shuffle),
        ),
        report=shown.show,
    )
    shown.close()
    kind = "sparse" if dataset.is_sparse else "dense"
    print(
        f"{options.destination}: {dataset.n_rows:,} rows of {dataset.n_features:,} features, {kind}, "
        f"{format_bytes(dataset.nbytes)} in {dataset.n_chunks} chunks, {time.monotonic() - began:.1f} s"
    )
    return 0


def _info(options: argparse.Namespace) -> int:
    from streamsvm.data.dataset import open_dataset
    from streamsvm.info import describe, format_description, verify

    dataset = open_dataset(options.data, options.label)
    about = describe(dataset)
    if options.verify:
        about |= verify(dataset)
    print(json.dumps(about) if options.json else format_description(about))
    return 0


def _train(options: argparse.Namespace) -> int:
    from streamsvm.data.dataset import open_dataset
    from streamsvm.machine import default_threads, parse_bytes
    from streamsvm.progress import Display
    from streamsvm.train import TrainOptions, train

    if options.solver in NOT_BUILT:
        raise InputError(f"--solver {options.solver}: {NOT_BUILT[options.solver]} are not built yet; use cutting-plane")
    workers = default_threads() if options.workers == "auto" else options.workers
    train_options = TrainOptions(
        C=options.C,
        solver=options.solver,
        class_weight=_parse_class_weight(options.class_weight),
        tol=options.tol,
        memory_bytes=None if options.memory is None else parse_bytes(options.memory),
        threads=options.threads,
        workers=None if workers is None else _parse_count("--workers", workers),
        scheduler=options.scheduler,
        max_passes=options.max_passes,
        max_seconds=options.max_seconds,
        seed=options.seed,
        options=_parse_options(options.option),
    )
    dataset = open_dataset(options.data, options.label)
    display = Display(dataset.n_rows, dataset.nbytes, options.tol)
    try:
        result = train(dataset, train_options, options.out, options.resume, listener=display.show)
    finally:
        display.close()
    if result.status == "interrupted":
        print(f"interrupted after pass {result.passes}; go on with the same command and --resume", file=sys.stderr)
    print(json.dumps(result.as_json()) if options.json else _sum_up(result, options.out))
    return STATUS_CODES[result.status]


def _sum_up(result: Any, out: Path) -> str:
    from streamsvm.machine import format_bytes

    return (
        f"{result.status}: objective {result.objective:.6g}, proved within {result.relative_gap:.2e} of the optimum, "
        f"{result.passes} passes over {result.n_rows:,} rows, {result.seconds:.1f} s\n"
        f"memory: peak {format_bytes(result.peak_memory_bytes)}, projected {format_bytes(result.projected_memory_bytes)}\n"
        f"model: {out / 'model.npz'}"
    )


def _predict(options: argparse.Namespace) -> int:
    from streamsvm.models import load
    from streamsvm.predict import open_rows, predict

    model = load(options.model)
    with open_rows(options.data, model, False, options.format, options.label) as rows:
        n_rows = predict(model, rows, options.out)
    print(f"{options.out}: {n_rows:,} predictions")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from streamsvm.info import format_evaluation
    from streamsvm.models import load
    from streamsvm.predict import evaluate, open_rows

    model = load(options.model)
    with open_rows(options.data, model, True, options.format, options.label) as rows:
        scores = evaluate(model, rows)
    print(json.dumps(scores) if options.json else format_evaluation(scores))
    return 0


class _RowCounter:
    """Rows read so far, on standard error, now and then."""

    def __init__(self) -> None:
        self.live, self.began, self.shown = sys.stderr.isatty(), time.monotonic(), 0.0

    def show(self, n_rows: int) -> None:
        """Print if it is time."""
        now = time.monotonic()
        if now - self.shown > (0.2 if self.live else 5.0) and now - self.began > 0.5:
            self.shown = now
            text = f"{n_rows:,} rows read, {n_rows / (now - self.began):,.0f} rows/s"
            print(f"\r\x1b[K{text}" if self.live else text, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the line."""
        if self.live and self.shown:
            print(file=sys.stderr)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _count(text: str) -> int:
    try:
        return _parse_count("the argument", text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse_count(name: str, text: str | int) -> int:
    if not str(text).isdecimal() or int(text) < 1:
        raise InputError(f"{name} is {text!r}; a whole number of at least 1 is expected")
    return int(text)


def _parse_shuffle(text: str) -> int | None:
    if text == "no":
        return None
    if not text.isdecimal():
        raise InputError(f"--shuffle {text!r}: give a seed (a whole number) or no")
    return int(text)


def _parse_class_weight(text: str | None) -> dict[str, float] | str | None:
    if text is None or text == "balanced":
        return text
    try:
        return {label: float(weight) for label, weight in (part.rsplit("=", 1) for part in text.split(","))}
    except ValueError:
        raise InputError(f"--class-weight {text!r}: write balanced, or label=weight,label=weight") from None


def _parse_options(texts: Sequence[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise InputError(f"--option {text!r}: write name=value")
    return dict(text.split("=", 1) for text in texts)
