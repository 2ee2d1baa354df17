"""What a method is: a record of what is known of it before it meets any data. Adding one: a folder, and a record.

The folder's `setup.py` holds two functions: `set_up(source, options, own) -> Fit`, which makes the method ready for the
rows of a source (own: its own options, read and checked), and `run_kernels(group, rows)`, which calls every compiled
function that it needs on two rows. They are imported when they are needed, so that a record costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from streamsvm.data.source import RowSource
    from streamsvm.methods.fit import Fit
    from streamsvm.numeric.rows import Rows
    from streamsvm.options import TrainOptions


@dataclass(frozen=True)
class Method:
    """A method, as users, command line and training know it.

    Parameters
    ----------
    name
        What a user calls it: `--solver`, `TrainOptions.solver`.
    losses
        The kinds of losses that it minimises; a problem says which kinds its own loss is (problems.problem).
    options
        A frozen dataclass of its own options (methods.option_fields).
    module
        Where `set_up` and `run_kernels` are.
    kernels
        The Mercer kernels that it takes, the default one first.
    holds_rows
        Whether `--resident-rows` means something to it.
    takes_numbered_rows
        Whether the rows of its passes come with their numbers, so that some of them can be held out.
    passes
        How `--plan` tells its passes: by those on a sample, by the epochs that were asked for, or not at all.
    side_by_side
        Own options that suit several fits in one read of the data, where the user gives none.
    """

    name: str
    losses: tuple[str, ...]
    options: type[Any]
    module: str
    kernels: tuple[str, ...] = ("linear",)
    holds_rows: bool = False
    takes_numbered_rows: bool = True
    passes: Literal["sampled", "epochs", "unknown"] = "sampled"
    side_by_side: Mapping[str, str] = field(default_factory=dict)

    def set_up(self, source: RowSource, options: TrainOptions, own: Any) -> Fit:
        """Return the method, ready for the rows of a source; InputError for what cannot be trained."""
        fit: Fit = import_module(self.module).set_up(source, options, own)
        return fit

    def run_kernels(self, group: str, rows: Rows) -> None:
        """Call every compiled function that it needs on these rows, so that it is compiled or loaded."""
        import_module(self.module).run_kernels(group, rows)
