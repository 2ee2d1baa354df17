"""The arguments of all commands. A class declares the arguments of a command; its docstring is their help."""

from __future__ import annotations

import re
from pathlib import Path

import streamsvm
from streamsvm.cli import settings
from streamsvm.cli import shared_arguments as shared
from streamsvm.cli.parser import Arguments, Parser, option, positional, switch
from streamsvm.data.sources.formats import FORMATS
from streamsvm.models.exports.formats import FORMATS as EXPORTS
from streamsvm.solvers.options import MAPS
from streamsvm.system.files import to_local_path
from streamsvm.system.machine import parse_bytes


class Demo(Arguments):
    """From files to certified models, on real and generated data, in a minute or two.

    Parameters
    ----------
    out : DIR
        keep the files here (default: a temporary folder)
    """

    module = "demo"
    out = option(to_local_path)


class Ingest(shared.Table, shared.Cluster, shared.Memory, shared.Json):
    """Files -> a dataset on disk.

    Parameters
    ----------
    sources : SOURCE
    destination : DEST.zarr
        a path, or a URL such as s3://bucket/d.zarr
    label : COLUMN
        column of a table with the labels (name, or number from 1)
    qid : COLUMN
        column of a table with the query ids
    sample_weight : COLUMN
        column of a table with the row weights
    groups : COLUMN
        column of a table with groups of rows that belong together; `tune` holds out whole groups
    unlabelled
        accept a table without labels, for `train --task one-class`
    regression
        the labels are numbers to predict, not classes; for `train --task regress`
    multi_label
        svmlight text has lists of labels, such as 1,3,7, which may be empty; each label is a problem of its own
    dense
        store rows densely (default: by density)
    sparse
    chunk_bytes : SIZE
        size of a chunk (default: 64MB, less for small data)
    shard_bytes : SIZE
        size of a file of several raw chunks; 0: one file per chunk (default: 256MB if features take 1GB or more)
    codec
        how chunks are compressed; crc32c: raw, with checksums (default)
    dtype
        the type of stored dense rows, which must hold all values exactly (default: float32)
    scale
        scaling of the features, which is recorded and applied by `predict`
    shuffle : SEED|no
        seed of the order in which rows are written; no: in the order of the input (default: 0)
    overwrite
        replace an existing dataset, once the new one is complete
    append
        add the rows to the dataset DEST.zarr, with its layout, scaling and encoding
    memory : SIZE
        the most memory that one process may use, such as 2GB or 512MiB (default: half of the machine's for workers, no
        limit in one process)
    resume
        resume an ingest on workers that was killed or lost its cluster; start from the beginning if nothing is left of
        it
    workers : N|auto
        worker processes on this machine that read, shuffle and write (default: threads here)
    new_classes
        the rows added by --append may have labels that are new to the dataset
    """

    sources = positional(nargs="+", help=f"{', '.join(each.help for each in FORMATS.values())}; -: standard input")
    destination = positional(settings.read_place)
    label = qid = sample_weight = groups = option()
    chunk_bytes = shard_bytes = option(parse_bytes)
    unlabelled = regression = multi_label = resume = new_classes = switch()
    dense = switch(one_of="layout", action="store_const", const="dense", dest="layout")
    sparse = switch(one_of="layout", action="store_const", const="sparse", dest="layout")
    codec = option(choices=("crc32c", "lz4", "zstd"), default="crc32c")
    dtype = option(choices=("float32", "float16", "bfloat16", "int8"), default="float32")
    scale = option(choices=("none", "minmax", "maxabs", "standard"), default="none")
    shuffle = option(settings.read_shuffle, default="0")
    overwrite = append = switch(one_of="target")


class Delete(shared.Json):
    """A dataset without some of its rows.

    Delete rows of a dataset. Later readers skip the rows; the files keep them until all rows are ingested again. `train
    --start-from` updates a model that was trained with --keep-ball.

    Parameters
    ----------
    data : DATA.zarr
    rows : ROWS|FILE
        numbers and ranges, such as 0-99,250, or a file of them; rows are numbered from 0, in the order in which
        `predict` writes the rows of the dataset
    group : VALUE
        all rows of these groups (recorded by `ingest --groups`)
    """

    needs = "which"
    data = positional(to_local_path)
    rows = option(one_of="which", action="append")
    group = option(one_of="which", nargs="+", action="extend")


class Split(shared.Json):
    """A dataset -> two: rows to train on, and held-out rows.

    Copy the rows of a dataset to two new datasets. Each class is split evenly; groups, or else queries, are split
    whole. Both datasets have the scaling and the encoding of DATA.zarr.

    Parameters
    ----------
    data : DATA.zarr
    train : TRAIN.zarr
        the rows to train on
    held_out : HELD_OUT.zarr
        the rows to measure models on
    share : SHARE
        share of the rows to hold out (default: 0.2)
    seed : N
        seed of the draw (default: 0)
    overwrite
        replace existing datasets, once the new ones are complete
    """

    data = positional()
    train = positional(settings.read_place)
    held_out = positional(settings.read_place)
    share = option(float, default=0.2)
    seed = option(int, default=0)
    overwrite = switch()


class Info(shared.Json):
    """Facts about a dataset or a model.

    Parameters
    ----------
    data : DATA.zarr|MODEL
        a dataset, a run's folder or a model file
    card
        for a model: its data, certificate, measures and limits, in Markdown
    eval : DATA
        measure the model on these rows, for its card
    verify
        read every chunk and check it
    label : COLUMN
        column of obs in an AnnData file
    """

    data = positional()
    card = verify = switch()
    eval = label = option()


class Features(shared.Kernel, shared.Engine, shared.Opening, shared.Json):
    """A dataset -> a dataset of features, for linear solvers.

    Map every row of a dataset. A model trained on the features carries the map, and takes raw rows. cholesky reads the
    rows 11 times, eigen 12, polynomial twice, nystrom once (and once more for --gamma scale).

    Parameters
    ----------
    data : DATA.zarr
    destination : DEST.zarr
    chunk_bytes : SIZE
        size of a chunk (default: 64MB, less for small data)
    resume
        resume after the last finished pass that computes the map; the results of these passes are in
        .DEST.zarr.passes.npz. The pass that writes the features starts again, and with nystrom everything starts again
    overwrite
        replace an existing dataset, once the new one is complete

    What to learn
    -------------
    map
        polynomial: of second order; the others approximate a kernel (default: cholesky)
    rank : N
        number of features that approximate a kernel (default: 300)
    gamma : scale|auto|VALUE
        scale of the kernels rbf, poly and sigmoid; the linear kernel has none (default: scale)
    seed : N
        seed of the random numbers (default: 0)
    """

    data = positional()
    destination = positional(to_local_path)
    map = option(choices=MAPS, default=MAPS[0])
    rank = option(settings.read_count)
    gamma = option(settings.read_gamma)
    seed = option(int)
    chunk_bytes = option(parse_bytes)
    resume = overwrite = switch()


class Train(shared.Settings):
    """A dataset -> a certified model.

    Parameters
    ----------
    plan
        do not train, but report the expected cost: bytes, seconds and memory of a pass, and the number of passes; reads
        a few chunks and writes no files, so --out is not needed (and not read)

    Files
    -----
    eval : DATA.zarr
        measure the model on the rows of another dataset after each step; the measures are in the history, and need no
        read of the training rows

    Rarely
    ------
    patience : STEPS
        stop with the status early_stop after this many steps in which the measure of --eval has not risen
    live : PORT
        serve the page of `report` on http://127.0.0.1:PORT/ while the training runs; 0: any free port
    keep_dual
        keep the dual point that proves the lower bound in RUN/dual.npz, for `verify --dual`; for classes with the hinge
        loss, and for rankings
    start_from : MODEL
        start from the weights of a model (a run's folder or a model file) with the same features and classes; the rows
        may have additional classes. If the model was trained with --keep-ball, and rows were appended or deleted since,
        read only these rows, unless the new optimum leaves the ball. For linear models with the hinge loss
    keep_ball
        summarise all rows around the optimum in RUN/ball.npz, for --start-from after rows are appended or deleted;
        takes one more read, or two if the rows are not shuffled, and as much disk as the resident rows
    """

    module = "train"
    plan = keep_dual = keep_ball = switch()
    start_from = option(to_local_path)
    eval = option()
    patience = option(settings.read_count)
    live = option(int)


class Tune(shared.Settings):
    """A grid of settings, cross-validated in shared reads of the data -> the best model.

    All fits of the grid and the folds share every read of the data; the best setting is trained on all rows. The
    options are those of `train`; each of --loss, --epsilon, --nu and --class-weight takes several values.

    What to learn
    -------------
    C : C,C,..
        costs of a row to try; not for tasks in which nu takes the place of C
    gamma : scale|auto|GAMMA,..
        scales to try, of the kernels rbf, poly and sigmoid (default: scale)
    loss : LOSS,..
    epsilon : EPSILON,..
        for regression: errors up to this size cost nothing (default: 0.1)
    nu : NU,..
        for one-class and the nu- tasks: the share of rows that may lie outside, or within the margin (default: 0.5)
    class_weight : balanced|a=2,b=1
        factors of C by class, here for the labels a and b; balanced: rare classes count as much as others; may be given
        several times, to try each
    scoring : NAME
        the measure of held-out rows that chooses the best setting, by the name of scikit-learn's scorer, such as
        balanced_accuracy, roc_auc, f1_macro, neg_log_loss or r2; an unknown name lists all names that suit the task
        (default: accuracy; f1_micro for sets of labels, neg_mean_absolute_error for regression, ordered_pairs for
        rankings)
    folds : N
        number of parts of the rows for cross-validation (default: 5)
    groups : COLUMN
        column of obs in an AnnData file with groups of rows to hold out together; datasets store their own groups
    forward
        split the groups in their order, and hold out only rows that come after those a fit is trained on

    Files
    -----
    out : RUN
        folder of the best setting's run, with tuning.json and tuning.html
    resume
        resume from the last checkpoint of every fit, in RUN/grid; this folder may be removed when the grid is finished
    """

    module = "train"
    out = option(to_local_path, required=True)
    C = option(settings.read_numbers, default=())
    gamma = option(settings.read_gammas, default=())
    loss = option(settings.read_losses, help=shared.Settings.loss.about["help"])
    epsilon = nu = option(settings.read_numbers)
    class_weight = option(settings.read_class_weight, action="append")
    folds = option(settings.read_count, default=5)
    groups = scoring = option()
    forward = switch()


class Scored(shared.ModelFile, shared.Rows, shared.Scheduler, shared.Memory, shared.Json):
    """The rows that a model scores.

    Parameters
    ----------
    memory : SIZE
        the most memory that the process may use, such as 2GB or 512MiB (default: no limit)
    unknown_features
        features with numbers beyond those of the model: refuse the rows, or ignore these features, with one warning of
        their number (default: error)
    """

    unknown_features = option(choices=("error", "ignore"), default="error")


class Predict(Scored):
    """A model and rows -> predictions.

    Parameters
    ----------
    data : DATA
        a dataset, or any file that ingest reads; -: standard input
    out : FILE
        .csv, .parquet, .npy or .zarr; -: CSV on standard output
    overwrite
        replace an existing .zarr (files are replaced anyway)
    probabilities
        add the probability of each class; for models trained with --probabilities, --loss logistic, or --multi-class
        multinomial
    top : K
        write, for each row, the K labels with the highest scores and these scores; for more than two classes
    id : COLUMN
        column of a table whose texts name the rows of the predictions (default: the --index of ingest)
    row_numbers
        number the rows, from 0, as `delete --rows` does
    columns : COLUMN,..
        write these columns only, in this order: row, name, label, score, probability, or one such as 'score a'
    """

    data = positional()
    out = option(settings.read_place, required=True)
    overwrite = probabilities = switch()
    top = option(settings.read_count)
    id = option(None, "--id", "--index", one_of="names")
    row_numbers = switch(one_of="names")
    columns = option(settings.read_names, action="extend", default=[])


class Evaluate(Scored):
    """Accuracy, ROC area, swapped pairs, NDCG of a model.

    Parameters
    ----------
    data : DATA
        a dataset, or any file that ingest reads
    qid : COLUMN
        column of the query ids (for a ranking)
    curves
        with --json: also the points of the ROC and precision-recall curves, for two classes
    """

    data = positional()
    qid = option()
    curves = switch()


class Export(shared.ModelFile, shared.Json):
    """A model -> a file for another program.

    Write a model to a file for another program, which then gives raw rows the scores of the model.

    Parameters
    ----------
    to
    out : FILE
    overwrite
        replace an existing file
    """

    to = option(
        choices=list(EXPORTS), required=True, help="; ".join(f"{name}: {each.help}" for name, each in EXPORTS.items())
    )
    out = option(settings.read_place, required=True)
    overwrite = switch()


class Import(shared.Json):
    """A model file of LIBLINEAR or LIBSVM -> a model.

    Read a linear classifier written by LIBLINEAR, or one of two classes written by LIBSVM, to predict with it or to
    start from it (`train --start-from`).

    Parameters
    ----------
    file : FILE
        the model file written by LIBLINEAR's train or LIBSVM's svm-train
    out : MODEL.npz
    overwrite
        replace an existing file
    """

    file = positional(Path)
    out = option(settings.read_place, required=True)
    overwrite = switch()


class Verify(shared.ModelFile, shared.Scheduler, shared.Memory, shared.Json):
    """The objective of a model, recomputed.

    Recompute the objective of a model, and on request its lower bound, in one read of the training rows. Exit status: 0
    if they agree with the model up to rounding, 1 if not, 2 if they cannot be computed.

    Parameters
    ----------
    data : DATA
        the dataset that it was trained on
    dual
        also recompute the lower bound: from a kernel model's coefficients, or from the dual point that `train
        --keep-dual` kept
    label : COLUMN
        column of obs in an AnnData file
    threads : N
        number of threads (default: all cores)
    """

    data = positional()
    dual = switch()
    label = option()
    threads = option(settings.read_count)


class Report(shared.Rows, shared.Json):
    """One page about runs: gap, costs, memory, measures, weights, settings.

    Parameters
    ----------
    runs : RUN
        folders of train or tune
    out : FILE.html
        (default: report.html in the folder of a single run)
    eval : DATA
        labelled rows (a dataset, or any file that ingest reads): adds curves, confusion matrix, reliability
    """

    runs = positional(to_local_path, nargs="+")
    out = option(to_local_path)
    eval = option()


class WarmUp(shared.Json):
    """Compile numerical functions ahead of their first use, for example in a container image.

    Parameters
    ----------
    what : WHAT
        the solvers that are used, by name; readers: of files; scores: of predict and evaluate; feature-maps (default:
        all)
    dense
        compile solvers for dense rows only
    sparse
        compile solvers for sparse rows only
    """

    what = positional(settings.read_compiled, nargs="*")
    dense = switch(one_of="layout", action="store_const", const=False, dest="is_sparse")
    sparse = switch(one_of="layout", action="store_const", const=True, dest="is_sparse")


KINDS = (
    Demo,
    Ingest,
    Split,
    Delete,
    Info,
    Features,
    Train,
    Tune,
    Predict,
    Evaluate,
    Export,
    Import,
    Verify,
    Report,
    WarmUp,
)
COMMANDS = {re.sub(r"\B(?=[A-Z])", "-", kind.__name__).lower(): kind for kind in KINDS}


def make_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="streamsvm", description="Support-vector machines trained on data larger than memory, with a certificate."
    )
    parser.add_argument("--version", action="version", version=f"streamsvm {streamsvm.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, arguments in COMMANDS.items():
        summary, _, description = arguments._summary.partition("\n")
        summary = f"{summary[:1].lower()}{summary[1:].removesuffix('.')}"
        command = commands.add_parser(name, help=summary, description=" ".join(description.split()))
        command.add(arguments)
        if issubclass(arguments, shared.Settings):
            command.usage = "%(prog)s DATA.zarr --out RUN [options]"
            command.epilog = "further options: --help-all; the options of a solver: --help-solver NAME"
    parser.commands = commands.choices
    return parser
