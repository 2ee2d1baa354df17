"""Which method is trained with if none is named."""

from __future__ import annotations

from typing import Any

import pytest

from streamsvm.options import TrainOptions
from streamsvm.solvers.registry import can_keep_dual
from streamsvm.solvers.set_up import choose_solver, set_up
from streamsvm.system.errors import InputError
from tests.conftest import make_problem

CHOSEN = {
    ("classify", None, "linear"): "cutting-plane",
    ("classify", None, "rbf"): "smo",
    ("classify", "squared_hinge", "linear"): "newton",
    ("regress", None, "linear"): "newton",
    ("regress", None, "poly"): "smo",
    ("one-class", None, "rbf"): "smo",
}


@pytest.mark.parametrize(("task", "loss", "kernel"), CHOSEN)
def test_a_method_for_the_loss_and_the_kernel_is_chosen(task: str, loss: str | None, kernel: str) -> None:
    assert choose_solver(TrainOptions(task=task, loss=loss, kernel=kernel)).name == CHOSEN[task, loss, kernel]


def test_a_named_method_is_not_replaced() -> None:
    assert choose_solver(TrainOptions(solver="cutting-plane", kernel="rbf")).name == "cutting-plane"
    assert choose_solver(TrainOptions(solver="irwls", kernel="linear")).name == "irwls"


def test_where_no_method_takes_the_kernel_one_for_the_loss_is_chosen_and_refuses_it() -> None:
    assert choose_solver(TrainOptions(loss="logistic", kernel="rbf")).name == "newton"
    with pytest.raises(InputError, match="does not support the loss hinge of --task roc-area; use --solver"):
        choose_solver(TrainOptions(solver="irwls", task="roc-area"))


def test_a_solver_that_is_not_for_a_loss_says_in_a_sentence_what_helps() -> None:
    """Either way out is one: the solver that is named, and the loss that is named."""
    told = "solver smo does not support the loss logistic of --task classify; use --solver newton, or --loss hinge"
    with pytest.raises(InputError, match=f"{told}, which it supports$"):
        choose_solver(TrainOptions(solver="smo", loss="logistic"))
    assert choose_solver(TrainOptions(solver="newton", loss="logistic")).name == "newton"
    assert choose_solver(TrainOptions(solver="smo", loss="hinge")).name == "smo"
    with pytest.raises(InputError, match="logistic of --task classify with --penalty l1; use --solver newton"):
        choose_solver(TrainOptions(solver="cutting-plane", loss="logistic", penalty="l1"))


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"solver": "interior-point"},
        {"solver": "newton", "loss": "logistic"},
        {"solver": "newton", "loss": "logistic", "penalty": "l1"},
        {"solver": "newton", "loss": "squared_hinge"},
        {"task": "rank"},
        {"task": "roc-area"},
        {"solver": "smo", "kernel": "rbf", "gamma": 0.5},
        {"solver": "irwls", "kernel": "rbf", "gamma": 0.5},
        {"solver": "budgeted-sgd", "kernel": "rbf", "gamma": 0.5},
    ],
)
def test_a_record_says_whether_fits_have_a_dual_point_to_keep(asked: dict[str, Any]) -> None:
    options = TrainOptions(**asked)
    fit = set_up(make_problem(1).in_memory(), options)
    told = can_keep_dual(choose_solver(options).name, options.task, options.loss, options.penalty)
    assert told == (fit.dual is not None)
