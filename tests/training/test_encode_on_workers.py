"""Workers encode the columns of tables as one process does, whatever their stretches, and tell its first fault."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow
import pyarrow.parquet as pyarrow_parquet
import pytest

from streamsvm.data import arrow_tables, parquet
from streamsvm.data.dataset import Dataset
from streamsvm.data.ingest_options import IngestOptions
from streamsvm.data.readers import ingest
from streamsvm.data.tables import Columns
from streamsvm.training.ingest_on_workers import ingest_on_workers
from tests.training.ingested_files import read_bytes
from tests.training.test_ingest_on_workers import here

__all__ = ["here"]
pytestmark = pytest.mark.once

WORKS = ["Private", 'Self "emp"', "none, yet", "State-gov", "Größe"]
ONE_HOT = Columns(index="id", one_hot=("auto",), missing="mean")


def make_table(seed: int, n: int, works: list[str] = WORKS, mark: str = ".") -> dict[str, list[str]]:
    """A table of texts: values are missing, and most categories come late."""
    rng = random.Random(seed)
    return {
        "id": [f"row {i}" for i in range(n)],
        "age": [rng.choice(["", "?", *(str(rng.randrange(17, 90)) for _ in range(8))]) for _ in range(n)],
        "work": [rng.choice(works[: 1 + i * len(works) // n]) for i in range(n)],
        "hours": [f"{rng.gauss(40, 10):.3f}".replace(".", mark) for _ in range(n)],
        "city": [rng.choice(["", *(f"city {k}" for k in range(30))]) for _ in range(n)],
        "label": [rng.choice([">50K", "<=50K"]) for _ in range(n)],
    }


def add_dates(table: dict[str, list[str]]) -> dict[str, list[str]]:
    dates = [f"20{10 + i % 14}-03-{1 + i % 28:02}" if i % 9 else "" for i in range(len(table["id"]))]
    return {**table, "joined": dates}


def write_csv(path: Path, table: dict[str, list[str]], sep: str = ",") -> Path:
    lines = [
        sep.join(f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row) for row in zip(*table.values(), strict=True)
    ]
    path.write_text("\n".join([sep.join(table), *lines]) + "\n")
    return path


def write_parquet(path: Path, table: dict[str, list[str]]) -> Path:
    """Numbers as numbers, and categories with a dictionary for each row group."""
    made = pyarrow.table(table)
    hours = made["hours"].cast("float64")
    made = made.set_column(made.column_names.index("hours"), "hours", hours)
    made = made.set_column(made.column_names.index("work"), "work", made["work"].dictionary_encode())
    if "joined" in table:
        dates = pyarrow.array([each or None for each in table["joined"]]).cast(pyarrow.timestamp("us"))
        made = made.set_column(made.column_names.index("joined"), "joined", dates)
    pyarrow_parquet.write_table(made, path, 37)
    return path


def require_same(paths: list[Path], columns: Columns, options: IngestOptions) -> Dataset:
    """Ingest by one process and on workers, and compare the files of the datasets."""
    folder = paths[0].parent
    ingest(paths, folder / "alone.zarr", columns=columns, options=options)
    made = ingest_on_workers(paths, folder / "shared.zarr", columns, options)
    assert read_bytes(folder / "shared.zarr") == read_bytes(folder / "alone.zarr")
    return made


COLUMNS = {
    "categories": Columns(index="id", one_hot=("auto",), missing="zero"),
    "means": ONE_HOT,
    "indicators": Columns(drop=("id",), one_hot=("work",), hash_bits=5, missing="indicator"),
    "hashed": Columns(index="id", hash_bits=6, missing="zero"),
    "numbers": Columns(drop=("id", "work", "city"), missing="mean"),
    "of words": Columns(one_hot=("id", "age", "work", "city"), missing="indicator"),
}
OPTIONS = {
    "shuffled": IngestOptions(chunk_bytes=700),
    "in order": IngestOptions(chunk_bytes=400, shuffle=None),
    "scaled": IngestOptions(scale="maxabs", shuffle=4, chunk_bytes=1000),
    "dense": IngestOptions(scale="standard", layout="dense", shuffle=1),
    "sparse shards": IngestOptions(chunk_bytes=400, shard_bytes=900, layout="sparse"),
}


@pytest.mark.covering(2)
@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("options", OPTIONS)
def test_csv(options: str, columns: str, dated: bool, here: None, tmp_path: Path) -> None:
    """The second file has categories that the first one has not."""
    tables = make_table(0, 150), make_table(1, 70, [*WORKS, "Astronaut"])
    paths = [write_csv(tmp_path / f"{k}.csv", add_dates(each) if dated else each) for k, each in enumerate(tables)]
    require_same(paths, COLUMNS[columns], OPTIONS[options])


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_PIECE_BYTES", 16 * 8 * 5)
    monkeypatch.setattr(arrow_tables, "PIECE_BYTES", 16 * 8 * 5)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("options", OPTIONS)
def test_parquet(options: str, columns: str, dated: bool, here: None, small_pieces: None, tmp_path: Path) -> None:
    tables = make_table(0, 150), make_table(1, 70, [*WORKS, "Astronaut"])
    paths = [write_parquet(tmp_path / f"{k}.parquet", add_dates(t) if dated else t) for k, t in enumerate(tables)]
    require_same(paths, COLUMNS[columns], OPTIONS[options])
