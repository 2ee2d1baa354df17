"""A campaign of hostile fits: python -m tests.faults.hostile_fits --count 100 --first 0 --losses "squared hinge" tune

Each loss and seed is a problem (`hostile_problems`), fitted in two layouts: rows in memory, and a stored dataset of
several chunks. Every fit is judged by an oracle in long double (`hostile_oracles`):

    false gap    "converged", while the gap of the saved model's own P and the reported D is more than tol
    D            D is above P of a model that somebody found: another solver, another layout, or nobody (all zeros)
    P            the reported P differs from that of the saved model by more than the rounding bound, or histograms of
                 scores report less than it
    verify       `verify` fails, or does not agree, unless rounding hides the lower bound of a fit that stalled
    slow         more than 20 CPU seconds for at most 200 rows
    exception, died, hang

The command prints a line of JSON for each fit, and a table. Child processes fit, so that the rest goes on after one has
died or hung. The exit status is 1 if there is a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from tests.faults.hostile_problems import FAMILIES, Hostile, draw

ROOT = Path(__file__).parents[2]
HANG_SECONDS, START_SECONDS = 150.0, 300.0
SLOW_SECONDS = 20.0
RELATIVE = 1e-9  # beside rounding bounds, what is allowed between numbers of float64 and long double


@dataclass
class Fit:
    """A fit, and what was found of it. rows: what `verify` reads, an array or a dataset."""

    case: Hostile
    layout: str
    model: Any
    rows: Any
    seconds: float
    faults: list[str]
    said: str = ""
    objective: Any = None  # P of the saved model, in long double
    upper: Any = None  # the least P that is known

    @property
    def status(self) -> str:
        """How it ended."""
        return "refused" if self.model is None and not self.faults else getattr(self.model, "status_", "none")

    def as_json(self) -> dict[str, Any]:
        """The line that is printed."""
        told = {"loss": self.case.loss, "seed": self.case.seed, "layout": self.layout, "status": self.status}
        found = {"faults": self.faults, "seconds": round(self.seconds, 2), "said": self.said}
        if self.model is not None:
            names = ("objective_", "lower_bound_", "rounding_bound_", "n_passes_")
            found |= {name: getattr(self.model, name, None) for name in names}
            found |= {"P": self.objective, "upper": self.upper}
        return {**told, **found, "case": self.case.describe()}


def run_case(case: Hostile, folder: Path) -> list[Fit]:
    """Fit a problem in its layouts, and judge each fit."""
    from tests.faults.hostile_layouts import list_attempts

    fits = list[Fit]()
    try:
        for attempt in list_attempts(case, folder):
            fits.append(try_fit(case, *attempt))
            if fits[-1].model is not None:  # before the next attempt changes the rows
                measure(fits[-1])
                verify_fit(fits[-1])
    except Exception as error:
        fits.append(Fit(case, "layouts", None, None, 0.0, *tell(error)))
    for fit in fits:
        if fit.objective is not None:
            known = [other for other in fits if other.objective is not None and fit.case.is_like(other.case)]
            # other chunks may give another map, and so another optimum
            fit.upper = min(other.upper for other in (known if fit.case.loss != "low rank" else [fit]))
            judge(fit)
    return fits


def tell(error: Exception) -> tuple[list[str], str]:
    """The faults, and what is said of them."""
    from streamsvm.system.errors import InputError

    if isinstance(error, InputError):
        return [], str(error)[:300]
    return ["exception"], "".join(traceback.format_exception(error))[-1500:]


def try_fit(case: Hostile, layout: str, rows: Any, make: Callable[[], tuple[Hostile, Any]]) -> Fit:
    """Fit, and once more if it was slow, since kernels may have been compiled."""
    found = Fit(case, layout, None, rows, 0.0, [])
    try:
        for _ in range(2):
            began = time.process_time()
            found.case, found.model = make()
            found.seconds = time.process_time() - began
            if found.seconds <= SLOW_SECONDS:
                return found
        found.faults.append("slow")
    except Exception as error:
        found.faults, found.said = tell(error)
    return found


def measure(fit: Fit) -> None:
    """Find P of the saved model, and the least P that is known."""
    from tests.faults.hostile_oracles import measure as measure_model

    try:
        fit.objective, others = measure_model(fit.case, fit.model)
        fit.upper = min([fit.objective, *others])
    except Exception as error:
        fit.faults.append("oracle")
        fit.said = tell(error)[1]


def judge(fit: Fit) -> None:
    """Name the faults of a fit whose P and whose optimum's upper bound are known."""
    model, P, tol = fit.model, fit.objective, fit.case.tol
    told, D, rounding = model.objective_, model.lower_bound_, model.rounding_bound_
    above, slack = np.longdouble(told) - P, (rounding or 1e-6 * abs(P)) + RELATIVE * abs(P)
    is_exact = fit.case.loss != "histograms"  # which prove an upper bound of P
    if not np.isfinite(told) or above < -slack or (is_exact and above > slack):
        fit.faults.append("P")
    if D is not None and fit.upper + RELATIVE * abs(fit.upper) < D:
        fit.faults.append("D")
    if model.status_ == "converged" and (D is None or (P - D) / abs(P) > tol * (1 + 1e-6)):
        fit.faults.append("false gap")


def verify_fit(fit: Fit) -> None:
    """Let streamsvm compute P anew, and D of kernel models."""
    from streamsvm.estimators.inputs import open_source
    from streamsvm.models.model import KernelModel
    from streamsvm.system.errors import InputError
    from streamsvm.verify.verify import verify

    case, stored = fit.case, not isinstance(fit.rows, np.ndarray | csr_array)
    given = (fit.rows, None, None) if stored else (fit.rows, case.y, case.weight)
    try:
        with open_source(fit.model, *given) as source:
            has_dual = isinstance(fit.model.model_, KernelModel) and case.family.labels != "numbers"
            found = verify(fit.model.model_, source, dual=has_dual, memory_bytes=2 << 30, threads=1)
        is_accurate = found.rounding_bound <= case.parameters.get("tol", 1e-3) * abs(found.objective)
        is_refused = fit.status != "converged" and found.objective_agrees and found.lower_bound_agrees is None
        if is_accurate and not found.agrees and not is_refused:  # rounding may stop `verify` where it stopped the fit
            fit.faults.append("verify")
            fit.said = str(found)
    except InputError as error:
        fit.said = f"verify: {error}"[:300]
        if fit.status == "converged":
            fit.faults.append("verify")
    except Exception:
        fit.faults.append("verify")
        fit.said = traceback.format_exc()[-1500:]


def run_campaign(todo: list[tuple[str, int]], report: Callable[[dict[str, Any]], None]) -> None:
    """Fit problems in child processes, and report each fit as an object of JSON."""
    while todo:
        done = 0
        for fits in fit_in_child(todo):
            for fit in fits:
                report(fit)
            done += 1
        todo = todo[done:]


def fit_in_child(todo: list[tuple[str, int]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the fits of each problem, up to one of which the child process dies, or which takes too long."""
    command = [sys.executable, "-m", "tests.faults.hostile_fits", "--child"]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as given:
        given.write(json.dumps(todo).encode())
        given.seek(0)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1"}
        child = subprocess.Popen(
            command, stdin=given, stdout=subprocess.PIPE, stderr=errors, bufsize=0, cwd=ROOT, env=environment
        )
        assert child.stdout is not None
        try:
            for n_done, (loss, seed) in enumerate(todo):
                ready, _, _ = select.select([child.stdout], [], [], HANG_SECONDS if n_done else START_SECONDS)
                line = child.stdout.readline() if ready else b""  # unbuffered: `select` would not see a buffer
                if not line:
                    child.send_signal(signal.SIGABRT)  # its traceback tells where it hangs
                    status = child.wait()
                    errors.seek(0)
                    written = errors.read().decode(errors="replace").partition("Extension modules")[0]
                    said = f"exit status {status} {written[-1500:]}"
                    fault = "died" if ready else "hang"
                    yield [{"loss": loss, "seed": seed, "status": "none", "faults": [fault], "said": said}]
                    return
                yield json.loads(line)
        finally:
            child.kill()
            child.wait()
            child.stdout.close()


def fit_all() -> None:
    """Be the child: fit the problems that standard input lists, and print a line for each."""
    out, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")
    for loss, seed in json.load(sys.stdin):
        with tempfile.TemporaryDirectory() as folder:
            fits = run_case(draw(loss, seed), Path(folder))
        print(json.dumps([fit.as_json() for fit in fits], default=float), file=out, flush=True)


def print_table(fits: Sequence[dict[str, Any]]) -> None:
    """Print how the fits of each loss ended, their faults, and the slowest fit."""
    print("| loss | fits | statuses | faults | most CPU s |\n|---|---|---|---|---|")
    for loss in [*dict.fromkeys(fit["loss"] for fit in fits), "all"]:
        own = [fit for fit in fits if loss in (fit["loss"], "all")]
        statuses, faults = Counter(fit["status"] for fit in own), Counter(each for fit in own for each in fit["faults"])
        listed = (", ".join(f"{count} {name}" for name, count in found.most_common()) for found in (statuses, faults))
        slowest = max(fit.get("seconds", 0.0) for fit in own)
        print(f"| {loss} | {len(own)} |", " | ".join(each or "none" for each in listed), f"| {slowest:.1f} |")


def main() -> int:
    """Run the campaign; return 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="how many seeds of each loss")
    parser.add_argument("--losses", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        fit_all()
        return 0
    fits, seeds = list[dict[str, Any]](), range(options.first, options.first + options.count)

    def report(fit: dict[str, Any]) -> None:
        fits.append(fit)
        print(json.dumps(fit), flush=True)

    run_campaign([(loss, seed) for loss in options.losses for seed in seeds], report)
    print_table(fits)
    return int(any(fit["faults"] for fit in fits))


if __name__ == "__main__":
    sys.exit(main())
