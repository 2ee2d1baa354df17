"""streamsvm compared with other trainers: the cost of reaching the optimum approximately, as tables and pictures.

    python pipelines/compare.py --data FOLDER [--out FOLDER] [--work FOLDER] [--only KEY ...] [--rounds 3]
        [--seconds 120] [--small]

All trainers get the same rows and the same objective. The same code (objectives.py) evaluates the objective of every
model. Each training is a separate process. The trainers take turns (A B C A B C), and the table shows medians of the
rounds for trainings of at most 10 s. Each trainer runs with a sequence (a ladder) of tolerances, epochs or sizes, from
coarse to fine (runs.py): "to 1e-3" is the time of the first rung of the ladder whose objective is within 1e-3 of the
optimum. The optimum is proved by a run of streamsvm to a gap of 1e-6. The other trainers are scikit-learn, LIBLINEAR,
LIBSVM, scikit-learn-intelex, snapml, dask-ml and Vowpal Wabbit: python -m pip install '.[bench]'. If a trainer is not
installed, its row of the table says so.

The clock starts when the rows are in memory. The problem `disk` has 2 GB of dense rows on the disk: the page cache is
emptied first, reading counts, and RLIMIT_DATA allows 600 MB. Mapped rows do not count against this limit, but copies of
rows that a trainer makes do.

The data folder holds the files that problems.py lists; problems whose files are missing are left out. --out is the
folder for the runs (JSON), the tables and the pictures; a later call with another --only adds problems to it. --work is
the folder for the rows. The exit status is 0, or 2 for bad arguments or data.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipelines.compare.outcomes import Outcome, load_outcomes, write_table
from pipelines.compare.pictures import draw_all
from pipelines.compare.problems import PROBLEMS, SMALL, Problem, Sizes, count_bytes, prepare
from pipelines.compare.runs import TRAINERS, Bench, Run, run_all
from pipelines.data import DataFolder
from pipelines.story import add_data_argument, add_out_argument, add_work_argument, make_out, open_work, run_story

SMALL_RUNGS = 2


def main() -> int:
    options = parse_arguments()
    return run_story("compare.py", lambda: compare_all(options))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare.py", description="streamsvm beside other trainers.")
    add_data_argument(parser)
    add_out_argument(parser, "folder for the runs, the tables and the pictures")
    add_work_argument(parser)
    keys = [problem.key for problem in PROBLEMS]
    parser.add_argument("--only", nargs="+", choices=keys, default=keys, help="compare on these problems only")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each training (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=120, help="limit of a training (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="1,500 rows, one round and two rungs: some minutes")
    return parser.parse_args()


def compare_all(options: argparse.Namespace) -> int:
    """Run the comparison on the chosen problems. Write tables and pictures of all problems whose runs are in --out."""
    make_out(options.out)
    with open_work(options.work) as work:
        for problem in PROBLEMS:
            if problem.key in options.only:
                compare(problem, work / (problem.key + "-small" * options.small), options.out, options)
    if options.out is not None:
        outcomes = load_outcomes(options.out, PROBLEMS)
        (options.out / "compare.md").write_text("\n".join(map(write_table, outcomes)) + "\n")
        if outcomes:
            draw_all(outcomes, options.out)
    return 0


def compare(problem: Problem, folder: Path, out: Path | None, options: argparse.Namespace) -> None:
    """Run all trainers on a problem, print its table, and save its runs."""
    if not prepare(problem, DataFolder(options.data), folder, SMALL if options.small else Sizes()):
        print(f"\n### {problem.title}\n\nLeft out: no {' or '.join(problem.files)} (--data).", flush=True)
        return
    progress = Progress(Bench(folder, options.seconds), out)
    trainers = TRAINERS[problem.kind]
    if options.small:
        trainers = tuple(replace(trainer, rungs=trainer.rungs[:SMALL_RUNGS]) for trainer in trainers)
    rounds = 1 if options.small else options.rounds
    run_all(trainers, rounds, progress.bench.run, progress.outcome.suboptimality, progress.note)
    print(write_table(progress.outcome), flush=True)


@dataclass
class Progress:
    """The runs of a problem so far. If there is an output folder, they are saved to it after each run."""

    bench: Bench
    out: Path | None
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runs.append(self.bench.prove())

    @property
    def outcome(self) -> Outcome:
        """All runs so far, in the form that tables need."""
        X, bench, lower_bound = self.bench.rows[0], self.bench, self.runs[0].lower_bound
        n, d = X.shape
        assert lower_bound is not None
        return Outcome(bench.problem, n, d, count_bytes(X), bench.limit, lower_bound, tuple(self.runs))

    def note(self, run: Run) -> None:
        """Add a run, save it, and report it to the user."""
        self.runs.append(run)
        if self.out is not None:
            self.outcome.save(self.out)
        print(f"{run.trainer}, {run.rung}: {run.status} {run.why}".strip(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
