"""Fits in several threads of one process, as joblib, the threads of a Dask worker, and web servers run them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from streamsvm import SVC, SVR, InteriorPoint, LinearSVC, LogisticRegression, OneClassSVM
from tests.conftest import make_problem

PROBLEM = make_problem(0, n=400, d=30)
WAIT_SECONDS = 120.0
FITS: dict[str, Callable[[], Any]] = {
    "cutting planes": lambda: LinearSVC(solver="cutting-plane"),
    "newton": lambda: LogisticRegression(C=10.0),
    "interior point": lambda: LinearSVC(solver="interior-point", n_jobs=2),
    "feature map": lambda: SVC(gamma=0.02, solver=InteriorPoint(n_components=60)),
    "smo": lambda: SVC(C=10.0, gamma=0.02),
    "irwls": lambda: SVC(solver="irwls", C=10.0, gamma=0.02),
    "regression": lambda: SVR(gamma=0.02, n_jobs=2),
    "one class": lambda: OneClassSVM(gamma=0.02),
}


def count_blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def fit(estimator: Any, on_step: Callable[[dict[str, Any]], None]) -> Any:
    return estimator.set_callbacks(on_step).fit(PROBLEM.X, PROBLEM.y.astype(float))


@pytest.mark.parametrize("name", FITS)
def test_a_fit_has_the_bits_that_it_has_alone(name: str) -> None:
    """While it is under way, another fit, which began before it, ends; then BLAS has the threads it had before."""
    first_began, first_ended, second_began, seen = Event(), Event(), Event(), list[int]()

    def hold_first(_: dict[str, Any]) -> None:
        first_began.set()
        assert second_began.wait(WAIT_SECONDS)

    def hold_second(_: dict[str, Any]) -> None:
        second_began.set()
        assert first_ended.wait(WAIT_SECONDS)
        seen.extend(count_blas_threads())

    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(2) as pool:
        before = count_blas_threads()
        alone = fit(FITS[name](), lambda _: None)
        first = pool.submit(fit, FITS[name](), hold_first)
        assert first_began.wait(WAIT_SECONDS)
        second = pool.submit(fit, FITS[name](), hold_second)
        first.result(WAIT_SECONDS)
        first_ended.set()
        shas = [one.result(WAIT_SECONDS).result_.model_sha256 for one in (first, second)]
        assert count_blas_threads() == before
    assert set(seen) == {1}
    assert shas == [alone.result_.model_sha256] * 2
