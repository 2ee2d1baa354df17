"""All statuses with which a training ends, their meanings, and the exit status of the command for each.

docs/statuses.md shows this table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamsvm.errors import CertificateError, InputError, say_count
from streamsvm.problems.registry import find_problem

if TYPE_CHECKING:
    from streamsvm.options import TrainOptions
    from streamsvm.requests import Progress


@dataclass(frozen=True)
class Status:
    """The exit status of the command, whether a resumed run has nothing left to do, and a sentence for people."""

    exit_code: int
    is_final: bool
    meaning: str


STATUSES = {
    "converged": Status(0, True, "The relative gap over all rows is proved to be at most tol, rounding included."),
    "paper_stop": Status(
        0, True, "The stop that `--option epsilon` asked for was reached; the gap that is told is larger than tol."
    ),
    "stationary": Status(
        0,
        True,
        "The kernel is indefinite, or its values were given (`precomputed`), so there is no lower bound; every row "
        "meets its condition within the tolerance.",
    ),
    "early_stop": Status(
        0,
        True,
        "The measure on the rows of `--eval` has not risen for as many steps as `--patience` says. Or the model is "
        "that of a fold, whose scores give probabilities, and has reached a gap that is enough for that. Or a callback "
        "of an estimator has asked for the end.",
    ),
    "pass_limit": Status(
        3, False, "As many passes as were allowed are made. After budgeted-sgd's epochs the exit status is 0."
    ),
    "time_limit": Status(3, False, "As many seconds as were allowed have passed."),
    "pair_limit": Status(3, False, "As many pair steps as were allowed (`max_pairs`) are made."),
    "stalled": Status(3, True, "No step changes what is proved any more; `status_reason` gives the reason."),
    "interrupted": Status(1, False, "A signal ended the run; the checkpoint of its last finished step is written."),
}
FINAL = tuple(name for name, status in STATUSES.items() if status.is_final)
DONE = tuple(name for name, status in STATUSES.items() if status.exit_code == 0)


def explain(
    status: str, progress: Progress, options: TrainOptions, finished: bool = False, is_resumed: bool = False
) -> str:
    """Return why a run ended with this status, and its figures; an empty text if it has converged.

    finished: whether the solver has made all passes that it makes. is_resumed: whether earlier parts of the run count.
    """
    gap, passes = progress.relative_gap, say_count(progress.passes, "pass")
    proved = "" if gap is None else f" at a gap of {gap:.1e} (tol {options.tol:g})"
    match status:
        case "pass_limit" if finished:
            return "the passes that were asked for are made; this solver proves no gap"
        case "pass_limit":
            before = "; it counts the passes before --resume, too, and a larger --max-passes goes on" * is_resumed
            return f"the limit of {passes} was reached{proved}{before}"
        case "pair_limit":
            return f"the limit of {say_count(int(options.options['max_pairs']), 'pair step')} was reached{proved}"
        case "early_stop":
            return f"it was told to end after {passes}{proved}"
        case "time_limit":
            return f"the seconds that were allowed were over after {passes}{proved}"
        case "interrupted":
            return f"a signal ended the run after {passes}{proved}; its checkpoint is written"
        case "stalled" if gap is None:
            return "the steps no longer change the multipliers, and the kernel has no lower bound"
        case "stalled" if find_problem(options.task).has_nu and _is_zero(progress):
            from streamsvm.requests import ROUNDINGS  # help texts need no compiler

            told = NO_FUNCTION[find_problem(options.task).needs_labels]
            return f"the objective is no more than {ROUNDINGS:g} times what rounding can account for: {told}"
        case "stalled":
            rounding, least = progress.tell_rounding(status) or 0.0, options.tol * progress.objective
            share = rounding / progress.objective if progress.objective > 0 else 0.0
            limit = "more than tol allows" if rounding > least else "less than tol, so the solver has stopped short"
            return (
                f"no further progress of the objective or its bound{proved}; rounding can account for {share:.1e} of "
                f"the objective, {limit}: scale the features to about 1, or lower C and the weights"
            )
        case "paper_stop":
            return f"the worst cut is violated by at most epsilon; the gap that is proved is {gap:.1e}"
        case "stationary":
            return "every row meets its condition within the tolerance; an indefinite kernel has no lower bound"
    return ""


def _is_zero(progress: Progress) -> bool:
    """Whether the objective is no larger than ten rounding bounds with a lower bound of 0, or than one."""
    is_bound_zero = progress.lower_bound == 0.0 and progress.is_rounded
    return is_bound_zero or progress.objective <= progress.rounding_bound


NO_FUNCTION = {  # where nu takes the place of C: of one class, and of classes, which need labels
    False: "the origin lies among the rows, and no function of this kernel is above 0 on them alone; another kernel "
    "helps, such as rbf",
    True: "with this nu the classes meet, and no function of this kernel tells them apart; a larger nu helps, or "
    "another kernel, such as rbf",
}


def require_finite(progress: Progress) -> None:
    """Raise InputError if the objective, its lower bound or the rounding bound is not a finite number."""
    values = (progress.objective, progress.lower_bound or 0.0, progress.rounding_bound)
    if not all(map(math.isfinite, values)):
        raise InputError(
            f"numbers beyond the range of float64 after pass {progress.passes} (objective {progress.objective}, lower "
            f"bound {progress.lower_bound}): scale the features to about 1 (ingest --scale), or lower C and the weights"
        )


def require_proved(progress: Progress) -> None:
    """Raise CertificateError if the lower bound exceeds the objective by more than rounding can explain."""
    if progress.lower_bound is None or progress.lower_bound - progress.objective <= progress.rounding_bound:
        return
    raise CertificateError(
        f"the lower bound {progress.lower_bound!r} is above the objective {progress.objective!r} by more than the "
        f"rounding bound {progress.rounding_bound!r}: a fault of streamsvm; please report it with the data and command"
    )
