"""streamsvm beside other trainers: seconds, passes and memory to come near the optimum, as tables and pictures.

    python pipelines/compare.py --data FOLDER [--out FOLDER] [--work FOLDER] [--only KEY ...] [--rounds 3]
        [--seconds 120] [--small]

The same rows and the same objective for all (compare_objectives.py), evaluated by the same code from what each trainer
leaves behind; one process a training, in turn (A B C A B C), medians of the rounds (of what took 10 s or less).
Each trainer climbs a ladder of tolerances or epochs (compare_runs.py): "to 1e-3" is the time of its first rung whose
objective is within 1e-3 of the optimum, which streamsvm proves by a run to a gap of 1e-6. The others are scikit-learn,
LIBLINEAR, LIBSVM, scikit-learn-intelex, snapml, dask-ml and Vowpal Wabbit: python -m pip install '.[bench]'. What is
not installed is a row that says so.

In memory, rows are loaded before the clock starts. `disk` are 2 GB of dense rows on the disk: the page cache is emptied
first, reading counts, and RLIMIT_DATA allows 600 MB; rows that are mapped do not count, only a trainer's copies do.

FOLDER of --data holds what compare_problems.py lists, plain or .xz; problems without their data are left out. --out
keeps the runs (JSON), the tables and the pictures, to which a later call with other --only adds. --work keeps the
rows. Exit status: 0, or 2 for bad arguments or data.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from compare_pictures import draw_all
from compare_problems import PROBLEMS, SMALL, Problem, Sizes, count_bytes, prepare
from compare_runs import TRAINERS, Bench, Run, run_all
from compare_tables import Outcome, load_outcomes, write_table

from streamsvm.errors import InputError

SMALL_RUNGS = 2


def main() -> int:
    options = parse_arguments()
    try:
        if options.out is not None:
            import matplotlib  # noqa: F401  before minutes of work, not after
        for folder in (options.out, options.work):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as passing:
            work, out = options.work or Path(passing), options.out or Path(passing)
            compared = [problem for problem in PROBLEMS if not options.only or problem.key in options.only]
            for problem in compared:
                compare(problem, work / (problem.key + "-small" * options.small), out, options)
            outcomes = load_outcomes(out, PROBLEMS)
            (out / "compare.md").write_text("\n".join(map(write_table, outcomes)) + "\n")
            if options.out is not None and outcomes:
                draw_all(outcomes, out)
    except ImportError:
        print('compare.py: --out draws: python -m pip install "streamsvm[plots]"', file=sys.stderr)
        return 2
    except InputError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="streamsvm beside other trainers")
    default = os.environ.get("STREAMSVM_DATA")
    parser.add_argument("--data", type=Path, default=default and Path(default), help="text files ($STREAMSVM_DATA)")
    parser.add_argument("--out", type=Path, help="keep runs, tables and pictures in this folder")
    parser.add_argument("--work", type=Path, help="keep the rows in this folder (default: a passing one)")
    parser.add_argument("--only", nargs="+", choices=[problem.key for problem in PROBLEMS], default=[])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each training (default: 3)")
    parser.add_argument("--seconds", type=int, default=120, help="limit of a training (default: 120)")
    parser.add_argument("--small", action="store_true", help="1,500 rows, one round, two rungs: some minutes")
    return parser.parse_args()


def compare(problem: Problem, folder: Path, out: Path, options: argparse.Namespace) -> None:
    """Run all trainers on a problem, print its table, keep its runs."""
    if not prepare(problem, options.data, folder, SMALL if options.small else Sizes()):
        print(f"\n### {problem.title}\n\nLeft out: no {' or '.join(problem.files)} (--data).", flush=True)
        return
    bench = Bench(folder, options.seconds)
    X, runs = bench.rows[0], [bench.prove()]

    def outcome() -> Outcome:
        assert runs[0].lower_bound is not None
        n, d = X.shape
        return Outcome(problem, n, d, count_bytes(X), options.seconds, runs[0].lower_bound, tuple(runs))

    def note(run: Run) -> None:
        runs.append(run)
        outcome().save(out)
        print(f"{run.trainer}, {run.rung}: {run.status} {run.why}".strip(), file=sys.stderr, flush=True)

    trainers = TRAINERS[problem.kind]
    if options.small:
        trainers = tuple(replace(trainer, rungs=trainer.rungs[:SMALL_RUNGS]) for trainer in trainers)
    run_all(trainers, 1 if options.small else options.rounds, bench.run, outcome().suboptimality, note)
    print(write_table(outcome()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
