"""The record of a method: the facts about it that do not depend on data.

To add a method, add a folder for it and a record in methods.registry. The folder's `setup.py` holds two functions.
`set_up(source, options, own) -> Fit` makes the method ready for the rows of a source, where `own` are its own options,
read and checked. `run_kernels(group, rows)` calls every compiled function of the method on two rows, dense or sparse.
The module is imported when it is needed first, so that a record costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from streamsvm.methods.option_fields import ALWAYS, Words

if TYPE_CHECKING:
    from streamsvm.data.source import RowSource
    from streamsvm.methods.fit import Fit
    from streamsvm.options import TrainOptions


@dataclass(frozen=True)
class SideBySide:
    """A way to make several fits in the same reads of the data.

    defaults: of the method's own options; settings: what the settings of every fit have to say, or the way is not
    taken. in_chains: whether a fit waits for the fit with the next smaller C, and starts from its end; otherwise all
    fits begin in the first read.
    """

    defaults: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    in_chains: bool = True


@dataclass(frozen=True)
class Method:
    """A method, as users, the command line and training know it.

    Parameters
    ----------
    name
        The name that users give it: `--solver`, `TrainOptions.solver`.
    losses
        The kinds of losses that it minimises; problems.registry names the kinds of each problem's loss.
    options
        The frozen dataclass of its own options (methods.option_fields).
    module
        The module that holds `set_up` and `run_kernels`.
    kernels
        The names of the kernels that it takes, the default one first.
    multi_class
        How it trains more than two classes, the default first: "ovr", each against the rest, or "ovo", all pairs.
    process_bytes
        Memory that it leaves for what any process needs, when it chooses how many rows to hold: the problems of many
        classes leave it once.
    reads
        Which of the settings `tol` and `resident_rows` it reads, each with the values of its own options with which it
        does (none: always). The command line refuses what is not read.
    takes_numbered_rows
        Whether the rows of its passes come with their numbers, so that some of them can be held out.
    passes
        How `--plan` predicts its passes: from a run on a sample, from the epochs that were asked for (its own options
        have `epochs` and `replicas`), or not at all, unless its settings say that all rows are resident.
    compiled
        The groups of compiled functions that `run_kernels` knows (methods.warm_up). None: one, with the method's name.
    compiled_for_set_up
        Those of the groups whose functions `set_up` calls already, and not only the steps.
    solves_all
        Whether it solves the problems of all labels by itself, and not one at a time.
    keeps_dual
        Whether its fits can keep the dual point behind their lower bound (methods.dual_points).
    side_by_side
        Ways to make several fits in the same reads, the best first; the first that the memory has room for is taken.
    """

    name: str
    losses: tuple[str, ...]
    options: type[Any]
    module: str
    kernels: tuple[str, ...] = ("linear",)
    multi_class: tuple[str, ...] = ("ovr",)
    process_bytes: int = 0
    reads: Mapping[str, Words] = field(default_factory=lambda: {"tol": ALWAYS})
    takes_numbered_rows: bool = True
    passes: Literal["sampled", "epochs", "unknown"] = "sampled"
    compiled: tuple[str, ...] = ()
    compiled_for_set_up: tuple[str, ...] = ()
    side_by_side: tuple[SideBySide, ...] = (SideBySide(),)
    solves_all: bool = False
    keeps_dual: bool = False

    def set_up(self, source: RowSource, options: TrainOptions, own: Any) -> Fit:
        """Return the method, ready for the rows of a source; InputError if it cannot be trained on them."""
        fit: Fit = import_module(self.module).set_up(source, options, own)
        return fit
