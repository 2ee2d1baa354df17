"""The setup of cutting planes without resident rows: by a line search, or by Algorithm 1 of the paper as it is."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from streamsvm.data.source import RowSource
from streamsvm.methods.cutting_plane import solver
from streamsvm.methods.cutting_plane.exact_points import exact_bytes
from streamsvm.methods.cutting_plane.solver import CuttingPlane, State
from streamsvm.methods.fit import DualWatch, Fit, TakeRows, report_progress
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.requests import MemoryNeed


def make_fit(source: RowSource, settings: CuttingPlane, note: str = "") -> Fit:
    """Return the fit with these settings, and with a note for users."""
    return Fit(
        method="cutting-plane",
        settings={name: list(v) if isinstance(v, tuple) else v for name, v in asdict(settings).items()},
        memory=partial(_need_memory, settings, source.n_features),
        start=partial(solver.start_state, source.n_features),
        start_at=solver.start_state_at,
        warm_start=partial(solver.warm_state, settings),
        solve=partial(solver.solve, settings, source.n_features),
        make_model=partial(_make_model, settings, source),
        report=report_progress,
        compiled=("cutting-plane",),
        dual=DualWatch("cuts", source.n_features + 1, settings.most_cuts(source.n_features)),
        note=note,
    )


def _need_memory(settings: CuttingPlane, n_features: int, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the solver. Shared vectors count twice: passes of several fits in one read copy them."""
    exact = exact_bytes(n_features + 1)
    return MemoryNeed(
        driver_bytes=settings.driver_bytes(n_features),
        turn_bytes=settings.turn_bytes(n_features),
        totals_bytes=settings.totals_bytes(n_features) + 2 * exact,
        shared_bytes=32 * (n_features + 1) + exact,
    )


def _make_model(settings: CuttingPlane, source: RowSource, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG001
    return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * settings.bias_feature)
