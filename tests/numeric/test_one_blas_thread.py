"""BLAS' number of threads in a process of its own, where nothing has loaded or limited BLAS before."""

from __future__ import annotations

import pytest

from tests.conftest import run_python

COUNT = """
import os, sys, threading
from threadpoolctl import threadpool_info, threadpool_limits
def count():
    return sorted({each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"})
"""
WHEREVER_IT_COMES_FROM = """
from streamsvm.numeric.compilation import one_blas_thread
with one_blas_thread():
    import pkgutil
    import streamsvm.runs.train
    from streamsvm.solvers.registry import SOLVERS
    for record in SOLVERS:
        pkgutil.resolve_name(record.solver)
    print(count())
print(count())
"""
WHOEVER_SET_IT_BEFORE = """
from streamsvm.numeric.compilation import one_blas_thread
threadpool_limits(2)
def hold():
    with one_blas_thread():
        print(count())
    print(count())
thread = threading.Thread(target=hold)
thread.start()
thread.join()
threadpool_limits(1)
print(count())
"""
IN_A_FORKED_PROCESS = """
import numpy as np
from streamsvm.numeric.compilation import one_blas_thread
began, ended = threading.Event(), threading.Event()
def hold():
    with one_blas_thread():
        began.set()
        ended.wait(60)
thread = threading.Thread(target=hold)
thread.start()
began.wait(60)
child = os.fork()
if not child:
    before = count()
    with one_blas_thread():
        print(before, count(), float((np.ones((300, 300)) @ np.ones((300, 300)))[0, 0]), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(count())
ended.set()
thread.join()
print(count())
"""


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (WHEREVER_IT_COMES_FROM, ["[1]", "[2]"]),
        (WHOEVER_SET_IT_BEFORE, ["[1]", "[2]", "[1]"]),
        (IN_A_FORKED_PROCESS, ["[2] [1] 300.0", "[1]", "[2]"]),
    ],
)
def test_it_has_one_within_and_those_of_before_afterwards(code: str, lines: list[str]) -> None:
    ran = run_python(COUNT + code, OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="2")
    assert ran.stdout.splitlines() == lines, ran.stderr
