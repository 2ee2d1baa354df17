"""Which method is trained with if none is named."""

from __future__ import annotations

import pytest

from streamsvm.errors import InputError
from streamsvm.methods.set_up import choose_method
from streamsvm.options import TrainOptions

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
    assert choose_method(TrainOptions(task=task, loss=loss, kernel=kernel)).name == CHOSEN[task, loss, kernel]


def test_a_named_method_is_not_replaced() -> None:
    assert choose_method(TrainOptions(solver="cutting-plane", kernel="rbf")).name == "cutting-plane"
    assert choose_method(TrainOptions(solver="irwls", kernel="linear")).name == "irwls"


def test_where_no_method_takes_the_kernel_one_for_the_loss_is_chosen_and_refuses_it() -> None:
    assert choose_method(TrainOptions(loss="logistic", kernel="rbf")).name == "newton"
    with pytest.raises(InputError, match=r"it is not for the loss hinge \(--task rank or roc-area\)"):
        choose_method(TrainOptions(solver="irwls", task="roc-area"))
