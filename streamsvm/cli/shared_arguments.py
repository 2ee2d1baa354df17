"""Arguments that several commands share: settings, kernels, memory, engines, and how files are read."""

from __future__ import annotations

import argparse

from streamsvm.cli.method_help import describe_default_kernels, describe_methods, name_kernels, name_multi_class
from streamsvm.cli.table_arguments import add_header
from streamsvm.cli.values import parse_gamma, parse_losses, parse_numbers, read_count
from streamsvm.data.formats import FORMATS
from streamsvm.methods.feature_map.options import MAPS
from streamsvm.methods.registry import AUTO, name_methods
from streamsvm.problems.registry import PENALTIES, PROBABILITIES, PROBLEMS, name_losses

SEED = "of the random numbers (default: 0)"


def add_kernel(command: argparse.ArgumentParser, default: str, names: list[str]) -> None:
    """Add the kernel, and the parameters that only some kernels have. default: what the help says of it."""
    command.add_argument("--kernel", choices=names, help=default)
    command.add_argument("--degree", type=read_count, help="of the kernel poly (default: 3)")
    command.add_argument("--coef0", type=float, help="of the kernels poly and sigmoid (default: 0)")


def add_gamma(command: argparse.ArgumentParser) -> None:
    """Add gamma."""
    values = "of the kernels rbf, poly and sigmoid; the linear one has none (default: scale)"
    command.add_argument("--gamma", metavar="scale|auto|VALUE", type=parse_gamma, help=values)


def add_probabilities(command: argparse.ArgumentParser) -> None:
    """Add the way to probabilities."""
    calibrates = "give the model probabilities, by scores that rows get from models of five folds: a sigmoid or an "
    calibrates += "isotonic function of each score, or one temperature for all of them"
    command.add_argument("--probabilities", choices=PROBABILITIES, help=calibrates)


def add_going_on(command: argparse.ArgumentParser, resume: str) -> None:
    """Add the arguments that say what to do if the folder holds a run already; `resume` is a help text."""
    what = command.add_mutually_exclusive_group()
    what.add_argument("--resume", action="store_true", help=resume)
    replaces = "replace a run that is there, or write into a folder that holds other files, which stay"
    what.add_argument("--overwrite", action="store_true", help=replaces)


def add_settings(command: argparse.ArgumentParser, several: bool = False) -> None:
    """Add the arguments that `train` and `tune` share. several: whether losses and the like may have several values."""
    solvers = name_methods()
    first = f"(default: {solvers[0]} for the hinge loss, newton for smooth losses, and smo for kernels)"
    command.add_argument("--solver", default=AUTO, choices=[AUTO, *solvers], help=first)
    _add_problem(command, several)
    _add_kernel_and_map(command)
    weights = "factors of C by class, for the labels a and b here; balanced: rare classes count as much as others"
    weights += "; may be given several times, to try each" * several
    action = "append" if several else "store"
    command.add_argument("--class-weight", metavar="balanced|a=2,b=1", action=action, help=weights)
    command.add_argument("--tol", type=float, help="relative duality gap to reach (default: 1e-3)")
    add_memory(command)
    command.add_argument("--resident-rows", metavar="N|10%", help="rows held in memory (default: as memory allows)")
    add_engine(command)
    add_cache(command)
    command.add_argument("--label", metavar="COLUMN", help="column of obs in an AnnData file")
    command.add_argument("--seed", type=int, default=0, help=SEED)
    limits = "exit status 3 if this comes before the end (of the epochs that budgeted-sgd is asked for, too)"
    command.add_argument("--max-passes", type=read_count, help=limits)
    command.add_argument("--max-seconds", type=float, help="exit status 3 if the training takes longer")
    own = "an option of the solver's own, listed below; may be given several times"
    command.add_argument("--option", metavar="NAME=VALUE", action="append", default=[], help=own)
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = describe_methods()
    add_json(command)


def _add_problem(command: argparse.ArgumentParser, several: bool) -> None:
    """Add the arguments that say what is minimised."""
    tasks = list(PROBLEMS)
    meanings = "; ".join(f"{task}: {entry.help}" for task, entry in PROBLEMS.items())
    what = command.add_mutually_exclusive_group()
    what.add_argument("--task", default=tasks[0], choices=tasks, help=f"{meanings} (default: {tasks[0]})")
    ways = "more than two classes: each against the rest (ovr), in pairs (ovo, the default of smo and irwls), or by "
    ways += "one problem for all of them"
    what.add_argument("--multi-class", choices=name_multi_class(), help=ways)
    losses = "of a row; squared_hinge and logistic are smooth (default: the first that the task has: hinge)"
    if several:
        known = f"{', '.join(name_losses())}: {losses}"
        command.add_argument("--loss", metavar="LOSS,..", type=parse_losses, help=known)
    else:
        command.add_argument("--loss", choices=name_losses(), help=losses)
    kept = "l1: the sum of absolute weights in place of 1/2 |w|^2, so that many are 0; for smooth losses (default: l2)"
    command.add_argument("--penalty", choices=PENALTIES, default="l2", help=kept)
    tube = "of a regression: errors of at most so much cost nothing (default: 0.1)"
    metavar, numbers = ("EPSILON,..", parse_numbers) if several else ("EPSILON", float)
    command.add_argument("--epsilon", metavar=metavar, type=numbers, help=tube)
    share = "of one class and of nu-: the share of rows that may lie outside, or within the margin (default: 0.5)"
    command.add_argument("--nu", metavar="NU,.." if several else "NU", type=numbers, help=share)


def _add_kernel_and_map(command: argparse.ArgumentParser) -> None:
    """Add the kernel, and the map that makes features of rows."""
    known = "precomputed: the rows are those of the kernel matrix, in order (ingest --shuffle no)"
    add_kernel(command, f"{known} (default: {describe_default_kernels()})", name_kernels())
    features = (
        "learn from features of the rows, which are made in each pass and not stored (`features` stores them): "
        "polynomial: of second order; the others approximate the kernel. For solvers of linear models"
    )
    command.add_argument("--map", choices=MAPS, help=features)
    ranks = "features of a --map that approximates a kernel (default: 300)"
    command.add_argument("--rank", type=read_count, help=ranks)


def add_json(command: argparse.ArgumentParser) -> None:
    """Add the printing of JSON."""
    command.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")


def add_memory(command: argparse.ArgumentParser) -> None:
    """Add the memory budget."""
    most = "all that one process may hold, such as 2GB or 512MiB (default: half of the machine's)"
    command.add_argument("--memory", metavar="SIZE", help=most)


def add_cache(command: argparse.ArgumentParser) -> None:
    """Add the cache of what is read from an object store."""
    what = "keep what is read from an object store in a folder on a local disk, up to a size: /scratch/cache:200GB"
    command.add_argument("--cache", metavar="FOLDER:SIZE", help=what)


def add_engine(command: argparse.ArgumentParser) -> None:
    """Add the arguments that say which threads, workers or cluster carry out the passes."""
    command.add_argument("--threads", type=read_count, help="(default: all cores, or 1 in a worker)")
    add_cluster(command, "worker processes on this machine (default: threads here)")


def add_cluster(command: argparse.ArgumentParser, workers: str) -> None:
    """Add the arguments that say which workers carry out what is to be done."""
    command.add_argument("--workers", metavar="N|auto", help=workers)
    command.add_argument("--scheduler", metavar="tcp://...", help="address of an existing Dask cluster")


def add_reading(command: argparse.ArgumentParser) -> None:
    """Add how rows of a file are read."""
    command.add_argument("--format", choices=list(FORMATS), help="(default: by the ending)")
    command.add_argument("--label", metavar="COLUMN", help="column of the labels")
    add_header(command)
