"""All methods by their records. A method that solves several kinds of problems differently has a record for each."""

from __future__ import annotations

from dataclasses import replace

from streamsvm.errors import InputError
from streamsvm.methods.budgeted_sgd.options import BudgetedOptions
from streamsvm.methods.class_decomposition.options import ClassDecompositionOptions
from streamsvm.methods.crammer_singer.options import CrammerSingerOptions
from streamsvm.methods.cutting_plane import options as cutting_plane
from streamsvm.methods.cutting_plane.options import AnyLossOptions, CuttingPlaneOptions, OneClassOptions
from streamsvm.methods.decomposition import options as decomposition
from streamsvm.methods.decomposition.options import WITH_ACTIVE_ROWS, DecompositionOptions
from streamsvm.methods.interior_point.options import InteriorPointOptions
from streamsvm.methods.label_newton import options as label_newton
from streamsvm.methods.label_newton.options import LabelNewtonOptions
from streamsvm.methods.method import Method, SideBySide
from streamsvm.methods.newton import options as newton
from streamsvm.methods.newton.options import NewtonOptions
from streamsvm.methods.option_fields import ALWAYS
from streamsvm.methods.ranking.options import RankingOptions
from streamsvm.problems.registry import PROBLEMS, SPARSE, find_kinds

DECOMPOSITION = Method(
    name="smo",
    losses=("hinge", "kinked", "one-class", "two-sums"),
    options=DecompositionOptions,
    module="streamsvm.methods.decomposition.setup",
    kernels=("linear", "rbf", "poly", "sigmoid", "precomputed"),
    multi_class=("ovo", "ovr"),
    process_bytes=decomposition.OTHER_BYTES,
    compiled=("smo", "linear-sums", "kernel-sums", "platt"),
    reads={"tol": ALWAYS, "resident_rows": {"selection": WITH_ACTIVE_ROWS}},
    passes="unknown",
)
METHODS = [
    Method(
        name="cutting-plane",
        losses=("hinge",),
        options=CuttingPlaneOptions,
        module="streamsvm.methods.cutting_plane.setup",
        keeps_dual=True,
        process_bytes=cutting_plane.OTHER_BYTES,
        compiled=("cutting-plane", "ascent", "one-read"),
        reads={"tol": ALWAYS, "resident_rows": ALWAYS},
        # Ascent on blocks walks by itself; where memory is too little, cuts for one C serve another.
        side_by_side=(
            SideBySide(settings={"acceleration": "one-read"}, in_chains=False),
            SideBySide({"acceleration": "line-search"}),
        ),
    ),
    Method(
        name="cutting-plane",
        losses=("pairs",),
        options=RankingOptions,
        module="streamsvm.methods.ranking.setup",
        keeps_dual=True,
        compiled=("ranking", "ranking-histograms"),
        compiled_for_set_up=("ranking",),  # it counts pairs
    ),
    Method(
        name="newton",
        losses=("labels",),
        options=LabelNewtonOptions,
        module="streamsvm.methods.label_newton.setup",
        process_bytes=label_newton.OTHER_BYTES,
        compiled=("label-newton",),
        side_by_side=(SideBySide(in_chains=False),),
        solves_all=True,
    ),
    Method(
        name="newton",
        losses=("smooth", "kinked"),
        options=NewtonOptions,
        module="streamsvm.methods.newton.setup",
        process_bytes=newton.OTHER_BYTES,
        reads={"tol": ALWAYS, "resident_rows": ALWAYS},
        side_by_side=(SideBySide(in_chains=False),),
    ),
    Method(
        name="newton",
        losses=(SPARSE,),
        options=NewtonOptions,
        module="streamsvm.methods.newton.l1_setup",
        process_bytes=newton.OTHER_BYTES,
        compiled=("l1-newton",),
        reads={"tol": ALWAYS, "resident_rows": ALWAYS},
        side_by_side=(SideBySide(in_chains=False),),
    ),
    Method(
        name="cutting-plane",
        losses=("convex",),
        options=AnyLossOptions,
        module="streamsvm.methods.cutting_plane.any_loss_setup",
        compiled=("any-loss",),
    ),
    Method(
        name="cutting-plane",
        losses=("classes",),
        options=CrammerSingerOptions,
        module="streamsvm.methods.crammer_singer.setup",
        process_bytes=cutting_plane.OTHER_BYTES,
        compiled=("crammer-singer",),
        reads={"tol": ALWAYS, "resident_rows": ALWAYS},
        side_by_side=(SideBySide(settings={"rows": "resident"}), SideBySide({"acceleration": "line-search"})),
    ),
    DECOMPOSITION,
    replace(DECOMPOSITION, name="irwls", losses=("hinge", "kinked", "one-class"), compiled=("irwls",)),
    replace(
        DECOMPOSITION,
        losses=("classes",),
        options=ClassDecompositionOptions,
        module="streamsvm.methods.class_decomposition.setup",
        kernels=("linear", "rbf", "poly", "precomputed"),
        multi_class=("ovr",),
        compiled=("smo-classes",),
        reads={"tol": ALWAYS, "resident_rows": ALWAYS},
    ),
    Method(
        name="cutting-plane",
        losses=("one-class",),
        options=OneClassOptions,
        module="streamsvm.methods.cutting_plane.one_class_setup",
        process_bytes=cutting_plane.OTHER_BYTES,
        compiled=("one-class",),
        reads={"tol": ALWAYS, "resident_rows": ALWAYS},
        passes="unknown",
        side_by_side=(SideBySide(in_chains=False),),
    ),
    Method(
        name="budgeted-sgd",
        losses=("hinge", "kinked", "squared-tube"),
        options=BudgetedOptions,
        module="streamsvm.methods.budgeted_sgd.setup",
        compiled=("budgeted-sgd", "budgeted-removal", "budgeted-average"),
        kernels=("rbf", "linear", "poly", "sigmoid"),
        reads={},  # it proves no gap that could be compared with a tolerance
        takes_numbered_rows=False,
        passes="epochs",
    ),
    Method(
        name="interior-point",
        losses=("hinge",),
        options=InteriorPointOptions,
        module="streamsvm.methods.interior_point.setup",
        keeps_dual=True,
    ),
]
AUTO = "auto"  # the first method that minimises the loss, with the kernel


def name_methods() -> list[str]:
    """Return the names of all methods, the default one first."""
    return list(dict.fromkeys(method.name for method in METHODS))


def can_solve(method: Method, losses: tuple[str, ...]) -> bool:
    """Return whether the method minimises a loss that belongs to these kinds."""
    return bool(set(method.losses) & set(losses))


def find_method(
    name: str, task: str, loss: str | None = None, penalty: str = "l2", kernel: str | None = None
) -> Method:
    """Return the method of this name for a loss of a task; InputError if there is none.

    "auto" is the first method that takes the kernel, or the first for the loss if none does; None: of any kernel.
    """
    kinds = find_kinds(task, loss, penalty)
    named = [method for method in METHODS if name in (method.name, AUTO)]
    if name == AUTO and kernel is not None:
        named.sort(key=lambda method: kernel not in method.kernels)
    if not named:
        raise InputError(f"solver {name!r}: choose from {', '.join([AUTO, *name_methods()])}")
    for method in named:
        if can_solve(method, kinds):
            return method
    losses = PROBLEMS[task].losses
    asked = f"{loss or next(iter(losses))} of --task {task}" + f" with --penalty {penalty}" * (penalty != "l2")
    able = dict.fromkeys(method.name for method in METHODS if can_solve(method, kinds))
    others = [other for other, own in losses.items() if any(can_solve(method, own) for method in named)]
    instead = f", or --loss {' or '.join(others)}, which it is for" if others else ""
    raise InputError(f"solver {name}: it is not for the loss {asked}; use --solver {' or '.join(able)}{instead}")


def find_method_of_kind(name: str, kind: str) -> Method:
    """Return the method of this name for a kind of losses, which must be among METHODS."""
    return next(method for method in METHODS if method.name == name and kind in method.losses)


def can_keep_dual(name: str, task: str, loss: str | None, penalty: str) -> bool:
    """Return whether a training by the method of this name can keep its dual point."""
    kinds = find_kinds(task, loss, penalty)
    return any(method.keeps_dual and method.name == name and can_solve(method, kinds) for method in METHODS)
