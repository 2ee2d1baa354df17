"""Groups of arguments that several commands share. The help on solvers comes from their records."""

from __future__ import annotations

import argparse
import textwrap
from functools import partial

from streamsvm.cli.parser import Arguments, Parser, Printing, option, positional, switch
from streamsvm.cli.settings import (
    read_class_weight,
    read_count,
    read_gamma,
    read_names,
    read_pair,
    read_place,
    read_workers,
)
from streamsvm.data.sources.formats import MISSING, NAMES
from streamsvm.problems.registry import MULTI_CLASS, PENALTIES, PROBABILITIES, PROBLEMS, name_losses, name_task
from streamsvm.solvers.options import MAPS, describe_options
from streamsvm.solvers.registry import AUTO, SOLVERS, SolverRecord, find_first, name_solvers
from streamsvm.system.machine import parse_bytes

WIDTH = 100
TASKS = tuple(name for name in PROBLEMS if name_task(name).startswith("--task"))
KERNELS = list(dict.fromkeys(kernel for method in SOLVERS for kernel in method.kernels))
OTHER_KERNELS = [f"{each.kernel} for {name_task(name)}" for name, each in PROBLEMS.items() if each.kernel]
OTHER_KERNELS += [f"{each.kernels[0]} for {each.name}" for each in SOLVERS if each.kernels[0] != KERNELS[0]]


class Json(Arguments):
    """The format of the result.

    Parameters
    ----------
    json
        print the result as one JSON object on the last line
    """

    json = switch()


class Memory(Arguments):
    """The memory budget.

    Machines
    --------
    memory : SIZE
        the most memory that one process may use, such as 2GB or 512MiB (default: half of the machine's)
    """

    memory = option(parse_bytes)


class Scheduler(Arguments):
    """A running cluster.

    Machines
    --------
    scheduler : tcp://...
        address of an existing Dask cluster
    """

    scheduler = option()


class Cluster(Scheduler):
    """The worker processes.

    Machines
    --------
    workers : N|auto
        worker processes on this machine (default: threads here)
    """

    workers = option(read_workers)


class Engine(Cluster, Memory):
    """The threads, workers and memory of the passes.

    Machines
    --------
    threads : N
        number of threads (default: all cores, or 1 in a worker)
    """

    threads = option(read_count)


class Csv(Arguments):
    """The format of a file, and the syntax of its text.

    Parameters
    ----------
    format
        format of the file (default: by its ending or its first rows)
    header
        whether the first row of CSV names the columns (default: auto, judged by its cells)
    sep : CHARACTER|whitespace
        the character that separates the columns of CSV, such as ; or |, or any blanks (default: by the file's name and
        first rows)
    quoting
        whether quotes enclose cells of CSV (minimal, the default), or are part of their text
    decimal : MARK
        the decimal mark of numbers in CSV, a comma or a point (default: the point)
    date_format : FORMAT
        the form of dates in tables, as for strptime, such as %%d.%%m.%%Y (default: 2024-12-31)
    base
        the number of the first feature in svmlight text; auto: 0 if the first rows have a feature 0, otherwise 1
        (default: 1, or as the model was trained)
    """

    format = option(choices=NAMES)
    header = option(choices=("auto", "yes", "no"), default="auto")
    sep = option()
    quoting = option(choices=("minimal", "none"))
    decimal = option(choices=(",", "."))
    date_format = option()
    base = option(choices=("auto", "0", "1"))


class Rows(Csv):
    """The labelled rows of a file.

    Parameters
    ----------
    label : COLUMN
        column of the labels
    """

    label = option()


class Table(Csv):
    """The columns of a table that become features, and how they are encoded.

    Parameters
    ----------
    drop : COLUMN,..
        columns of a table to leave out; may be given several times
    index : COLUMN
        column of a table that names the rows and is not a feature; predictions begin with these names
    missing
        replace missing values with the mean of the column, with zero, or with zero and an extra feature that is 1 where
        the value is missing (default: missing values are refused)
    one_hot : COLUMN,..|auto
        columns in which each category becomes a feature, 0 or 1; auto: all text columns
    hash_bits : BITS
        hash the values of all other text columns into 2^BITS features
    text : COLUMN,..
        columns of a table to read as text, whatever its first rows hold; in a label column, a text such as NA is then a
        class
    date : COLUMN,..
        columns of a table to read as dates, whatever its first rows hold
    number : COLUMN,..
        columns of a table to read as numbers, whatever its first rows hold
    like : DATA.zarr
        a dataset; encode the table as the table of this dataset was encoded, which the rows of `train --eval` need
    """

    drop = one_hot = text = date = number = option(read_names, action="extend", default=[])
    index = like = option()
    missing = option(choices=MISSING)
    hash_bits = option(int, "--hash")


class Opening(Arguments):
    """How a dataset is opened.

    Files
    -----
    label : COLUMN
        column of obs in an AnnData file
    cache : FOLDER:SIZE
        cache reads from an object store in a local folder, up to a size: /scratch/cache:200GB
    """

    label = cache = option()


class ModelFile(Arguments):
    """A model.

    Parameters
    ----------
    model : MODEL
        a run's folder or a model file
    """

    model = positional()


class Kernel(Arguments):
    """The kernel, and the parameters that only some kernels have.

    What to learn
    -------------
    kernel
        kernel to approximate (default: rbf)
    degree : N
        degree of the kernel poly (default: 3)
    coef0 : VALUE
        constant term of the kernels poly and sigmoid (default: 0)
    """

    kernel = option(choices=[name for name in KERNELS if name != "precomputed"])
    degree = option(partial(read_count, least=0))
    coef0 = option(float)


class Settings(Kernel, Engine, Opening, Json):
    """The settings that `train` and `tune` share.

    Parameters
    ----------
    data : DATA.zarr
        a dataset, an AnnData file, or a file of rows
    help_all
        show this message with the options that are rarely needed, and exit
    help_solver : NAME
        show the options of a solver (--option NAME=VALUE), and exit

    What to learn
    -------------
    task : TASK
    multi_class
        how to train more than two classes: each against the rest (ovr), in pairs (ovo, the default of smo and irwls),
        or by one problem for all of them, an SVM (crammer_singer) or logistic regression (multinomial)
    loss : LOSS
    penalty
        l1: the sum of absolute weights instead of 1/2 |w|^2, so that many weights are 0; for smooth losses (default:
        l2)
    C : C
        cost of a row, as in LIBSVM and scikit-learn (default: 1)
    class_weight : balanced|a=2,b=1
        factors of C by class, here for the labels a and b; balanced: rare classes count as much as others
    epsilon : EPSILON
        for regression: errors up to this size cost nothing (default: 0.1)
    nu : NU
        for one-class and the nu- tasks: the share of rows that may lie outside, or within the margin (default: 0.5)
    kernel
    gamma : scale|auto|VALUE
        scale of the kernels rbf, poly and sigmoid; the linear kernel has none (default: scale)
    map
        learn from features that are computed from the rows in each pass and not stored (`features` stores them).
        polynomial: of second order; the others approximate the kernel. For solvers of linear models
    rank : N
        number of features of a --map that approximates a kernel (default: 300)
    probabilities
        give the model probabilities, fitted to held-out scores of five folds: a sigmoid (default) or an isotonic
        function of each score, or one temperature for all scores
    solver : NAME
    option : NAME=VALUE
        an option of the solver, which --help-solver lists; may be given several times

    Limits
    ------
    tol : GAP
        relative duality gap to reach (default: 1e-3)
    max_passes : N
        stop after this many passes, with exit status 3 (also within the epochs of budgeted-sgd)
    max_seconds : SECONDS
        stop a training that takes longer, with exit status 3

    Files
    -----
    out : RUN
        folder of the run: settings, history, checkpoint, model
    resume
        resume from the run's checkpoint, or start from the beginning if there is none
    overwrite
        replace an existing run, or write into a folder that holds other files, which are kept

    Rarely
    ------
    resident_rows : N|10%
        rows held in memory (default: as memory allows)
    seed : N
        seed of the random numbers (default: 0)
    """

    data = positional()
    help_all = option(action=Printing, nargs=0, const=Parser.format_all, default=argparse.SUPPRESS)
    help_solver = option(
        action=Printing, choices=name_solvers(), const=lambda _, name: describe_solver(name), default=argparse.SUPPRESS
    )
    out = option(read_place)
    C = option(float, default=1.0)
    gamma = option(read_gamma)
    solver = option(
        choices=[AUTO, *name_solvers()],
        default=AUTO,
        help=f"{', '.join(name_solvers())} (default: {name_solvers()[0]} for the hinge loss, newton for smooth losses, "
        "and smo for kernels)",
    )
    task = option(
        one_of="problem",
        choices=TASKS,
        default=TASKS[0],
        help=f"{'; '.join(f'{name}: {PROBLEMS[name].help}' for name in TASKS)} (default: {TASKS[0]})",
    )
    multi_class = option(
        one_of="problem",
        choices=list(dict.fromkeys([*(way for method in SOLVERS for way in method.multi_class), *MULTI_CLASS])),
    )
    loss = option(
        choices=name_losses(),
        help=f"{', '.join(name_losses())}: the loss of a row; squared_hinge and logistic are smooth (default: the "
        "task's first loss, which is hinge for classes)",
    )
    penalty = option(choices=PENALTIES, default="l2")
    epsilon = nu = tol = max_seconds = option(float)
    kernel = option(
        choices=KERNELS,
        help="precomputed: the rows are those of the kernel matrix, in order (ingest --shuffle no) (default: "
        f"{'; '.join([KERNELS[0], *OTHER_KERNELS])})",
    )
    map = option(choices=MAPS)
    rank = max_passes = option(read_count)
    class_weight = option(read_class_weight)
    resident_rows = option()
    seed = option(int, default=0)
    probabilities = option(choices=PROBABILITIES, nargs="?", const=PROBABILITIES[0])
    resume = overwrite = switch(one_of="folder")
    option = option(read_pair, action="append", default=[])  # hides the function of this name


def describe_solver(name: str) -> str:
    """Return the help on a solver's own options, which depend on the task."""
    lines = [f"options of {name} (--option NAME=VALUE):"]
    wrapper = textwrap.TextWrapper(WIDTH, initial_indent="    ", subsequent_indent="      ")
    for method in SOLVERS:
        if method.name == name and (tasks := _find_tasks(method)):
            lines.append(f"  with {' or '.join(map(name_task, tasks))}:")
            lines += [wrapper.fill(line) for line in describe_options(method.options) or ["none"]]
    return "\n".join(lines) + "\n"


def _find_tasks(method: SolverRecord) -> tuple[str, ...]:
    """Return the tasks for which the solver's name refers to this record; several records may share a name."""
    able = {task: entry.losses.values() for task, entry in PROBLEMS.items()}
    return tuple(task for task, losses in able.items() if any(find_first(method.name, own) is method for own in losses))
