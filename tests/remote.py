"""Datasets in the object store of a test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from streamsvm.data.remote import store
from tests.object_server import ObjectServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """An object store, which the environment names, and which is asked again without waiting long."""
    backoff = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5), "base": 2}
    monkeypatch.setattr(store, "RETRIES", {**store.RETRIES, "max_retries": 4, "backoff": backoff})
    with ObjectServer() as opened:
        for name, value in opened.environment.items():
            monkeypatch.setenv(name, value)
        store.connect.cache_clear()
        yield opened
    store.connect.cache_clear()


def upload(server: ObjectServer, folder: str | Path, name: str = "bucket/rows.zarr") -> str:
    """Put the files of a folder into the store, and return the URL under which they lie there."""
    for file in Path(folder).rglob("*"):
        if file.is_file():
            server.objects[f"{name}/{file.relative_to(folder).as_posix()}"] = file.read_bytes()
    return f"s3://{name}"
