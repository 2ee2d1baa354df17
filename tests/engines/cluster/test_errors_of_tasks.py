"""Errors that tasks raise arrive as they were raised: Dask pickles them in its own way."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
import tblib.pickling_support
from distributed import Client
from distributed.protocol import pickle

import streamsvm
from streamsvm.engines.cluster.watch import ClusterWatch
from streamsvm.system.errors import InputError, IntegrityError, ReadError, WriteError


def list_errors() -> Iterator[type[Exception]]:
    """Every class of errors in the package."""
    for module in pkgutil.walk_packages(streamsvm.__path__, "streamsvm."):
        if not module.name.endswith("__main__"):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == module.name:
                    yield value


ERRORS = sorted(list_errors(), key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__qualname__)
def test_every_error_of_the_package_survives_dasks_pickle(kind: type[Exception]) -> None:
    raised = catch(kind)
    tblib.pickling_support.install(raised)  # as distributed does with what a task raises
    found: Any = pickle.loads(pickle.dumps(raised))
    assert (type(found), str(found), found.args) == (kind, str(raised), raised.args)
    assert str(found.__cause__) == "the cause"


def catch(kind: type[Exception]) -> Exception:
    try:
        raise kind("rows.zarr: a message") from OSError("the cause")
    except kind as error:
        return error


def fail(kind: type[Exception]) -> None:
    raise kind("s3://bucket/rows: no answer")


@pytest.mark.parametrize("kind", [ReadError, WriteError, IntegrityError, InputError, PermissionError])
def test_an_error_of_a_task_is_no_lost_connection(client: Client, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^s3://bucket/rows: no answer$"):
        ClusterWatch(client, "a test").result(client.submit(fail, kind, pure=False))
