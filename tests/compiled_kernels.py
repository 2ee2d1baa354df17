"""What a training of each solver compiles: a script that trains on small data, for tests and a benchmark.

    python -m tests.compiled_kernels CASE dense|sparse

It prints, as JSON, the kernels that were loaded before the first pass, each with its lines of LLVM code; the kernels
that came later, which a pass would have compiled; and how many passes of the compiler were run in this process itself.
A kernel is a function with the types of its arguments. Functions that only kernels call are part of its lines.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from itertools import product
from multiprocessing import get_context
from typing import Any

from numba.core import event
from numba.core.dispatcher import Dispatcher

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.features import find_feature_map
from streamsvm.runs.train import train
from streamsvm.solvers import set_up
from streamsvm.solvers.options import FeatureOptions
from tests.class_problems import make_classes
from tests.conftest import make_problem

RBF: dict[str, Any] = {"kernel": "rbf"}
CASES: dict[str, dict[str, Any]] = {
    "cutting-plane": {},
    "crammer-singer": {"task": "crammer-singer"},
    "softmax": {"task": "multinomial"},
    "smo-classes": {"task": "crammer-singer", **RBF},
    "ranking": {"task": "rank"},
    "smo": {"solver": "smo", **RBF},
    "irwls": {"solver": "irwls", **RBF},
    "budgeted-sgd": {"solver": "budgeted-sgd", **RBF, "options": {"budget": 20}},
    "interior-point": {"solver": "interior-point"},
    "newton": {"loss": "logistic"},
    "l1-newton": {"loss": "logistic", "penalty": "l1"},
    "feature map": RBF,
}
LAYOUTS = ("dense", "sparse")


def list_kernels() -> dict[str, int]:
    """Return the kernels of the package that are in this process, with their lines of LLVM code."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("streamsvm"):
            for value in list(vars(module).values()):
                if isinstance(value, Dispatcher):
                    function = f"{value.py_func.__module__}.{value.py_func.__qualname__}"
                    for signature, result in value.overloads.items():
                        code = str(result.library._get_module_for_linking())  # get_llvm_str is not for cached code
                        found[f"{function}({', '.join(map(str, signature))})"] = code.count("\n")
    return found


def run_case(name: str, is_sparse: bool) -> None:
    """Train as a user would who names the solver alone."""
    make = make_classes if name == "softmax" else make_problem  # two classes are one logistic problem
    problem = make(3, n=500, density=0.5 if is_sparse else 1.0)
    options = TrainOptions(threads=1, **CASES[name])
    source: ArrayDataset = problem.in_memory()
    if name == "feature map":
        find_feature_map(source, FeatureOptions(rank=20), options)
    else:
        train(source, options)


def inspect(name: str, layout: str) -> dict[str, Any]:
    """Carry a case out, and return what it compiled."""
    loaded: dict[str, int] = {}
    load = set_up.load_or_compile

    def load_and_list(names: Sequence[str], run: Any) -> None:
        load(names, run)
        loaded.update(list_kernels())

    set_up.load_or_compile = load_and_list
    with event.install_recorder("numba:run_pass") as seen:
        run_case(name, layout == "sparse")
    later = sorted(set(list_kernels()) - set(loaded))
    return {"kernels": loaded, "later": later, "passes": len(seen.buffer)}


def inspect_all() -> None:
    """Print what each case compiles, a line for each. It has a process of its own, a fork of this one."""
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for found in pool.starmap(inspect, product(CASES, LAYOUTS), chunksize=1):
            print(json.dumps(found))


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    print(json.dumps(inspect(*sys.argv[1:])))


if __name__ == "__main__":
    main()
