"""Where the time of a run goes: into the passes that its solver asks for, and into the solver between them."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from streamsvm.requests import Request, Step

Solver = Generator[Request, Any, None]


@dataclass
class Clock:
    """Seconds of a run so far. In a grid, runs wait for shared passes, and each counts all of the time of these."""

    pass_seconds: float = 0.0
    solver_seconds: float = 0.0

    def watch(self, solver: Solver) -> Solver:
        """Yield the requests of a solver, and count the seconds until each, and until its answer comes.

        What is done with a step, such as a checkpoint or a measure of held-out rows, is counted in neither.
        """
        answer = None
        while True:
            began = time.monotonic()
            request = solver.send(answer)
            asked = time.monotonic()
            self.solver_seconds += asked - began
            answer = yield request
            if not isinstance(request, Step):
                self.pass_seconds += time.monotonic() - asked

    def tell(self) -> dict[str, float]:
        """Return the seconds by name, as a line of the history has them."""
        return {name: round(seconds, 4) for name, seconds in vars(self).items()}

    def go_on_from(self, line: Mapping[str, Any]) -> None:
        """Add the seconds that the last line of a history tells, if it does."""
        self.pass_seconds += line.get("pass_seconds", 0.0)
        self.solver_seconds += line.get("solver_seconds", 0.0)
