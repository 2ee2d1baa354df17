"""Who is told of the steps of a fit: the log, the terminal, and functions of the user."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamsvm.training.result import Event

LOGGER = logging.getLogger("streamsvm")

Callback = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Listeners:
    """Called after each step. name: of the estimator. is_verbose: whether steps are printed; INFO logs them anyway."""

    name: str
    is_verbose: bool
    callbacks: tuple[Callback, ...]

    def __call__(self, event: Event) -> None:
        """Tell them of a step."""
        line = event.line
        gap = line["relative_gap"]
        shown = "unknown" if gap is None else f"{gap:.2e}"
        told = f"[{self.name}] pass {line['passes']}: objective {line['objective']:.6g}, gap {shown}"
        LOGGER.info("%s", told)
        if self.is_verbose:
            print(told)
        for callback in self.callbacks:
            callback(dict(line))
