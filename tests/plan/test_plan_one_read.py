"""`train --plan` of one read: the probe keeps as few rows as training does, and what more memory would save is told."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest

from streamsvm.cli.train import format_plan
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.plan import predict
from streamsvm.plan.predict import plan_training
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane.near_rows import Look
from streamsvm.solvers.one_read import setup
from streamsvm.solvers.one_read.state import GROUP_SHARE
from streamsvm.solvers.set_up import set_up
from streamsvm.system.machine import parse_bytes
from tests.conftest import make_problem


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """20,000 rows in 20 chunks."""
    return make_problem(3, 20_000).store(tmp_path_factory.mktemp("large") / "rows.zarr", chunk_bytes=30_000)


def test_the_probe_keeps_no_larger_share_of_the_rows_than_training(
    large: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample is also tried with as many resident rows as training has, which would be most of a chunk's rows."""
    monkeypatch.setattr(predict, "SAMPLE_ROWS", 2000)
    shares, measure_passes = list[float](), predict.Probe.measure_passes

    def look_at(probe: predict.Probe, tried: predict.SampleRun) -> predict.Speed:
        shares.extend(look.share for scan, _ in tried.scans for look in scan.shared if isinstance(look, Look))
        return measure_passes(probe, tried)

    monkeypatch.setattr(predict.Probe, "measure_passes", look_at)
    plan = plan_training(large, TrainOptions(C=0.01, threads=1, resident_rows=1500))
    assert plan.passes.about is not None
    assert shares
    assert max(shares) == pytest.approx(GROUP_SHARE * 1500 / large.n_rows, rel=0.02)


@pytest.mark.parametrize("rows", [60, 400])
def test_it_is_told_with_how_many_resident_rows_fewer_reads_are_enough(
    large: Dataset, rows: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """13% of (n d)^(2/3) rows; by the plan and by training, and only where there are fewer."""
    options = TrainOptions(C=0.01, threads=1, resident_rows=rows, max_passes=1)
    enough = round(0.13 * (large.n_rows * large.n_features) ** (2 / 3))
    expected = f"{rows} rows are kept in memory. With {enough} rows, the data would be read fewer times."
    told = expected if rows < enough else ""
    plan = plan_training(large, options)
    assert plan.note == told
    assert plan.as_json()["note"] == told
    assert (told in format_plan(plan).splitlines()[-1]) or not told
    with caplog.at_level(logging.INFO):
        train(large, options, tmp_path / "run")
    assert (expected in caplog.text) == (rows < enough)


def test_with_as_much_more_memory_as_is_told_there_are_as_many_rows(
    large: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = setup.SMALL_ROWS / (large.n_rows * large.n_features) ** (2 / 3)
    monkeypatch.setattr(setup, "LAW_SHARE", most)  # as many as are kept at most
    own = TrainOptions(C=0.01, options={"acceleration": "one-read"})
    notes = {memory: set_up(large, replace(own, memory_bytes=memory << 20)).note for memory in range(300, 400)}
    told = {memory: note for memory, note in notes.items() if "which need" in note}
    assert len(told) > 5
    for memory, note in told.items():
        found = re.fullmatch(r"([\d,]+) rows .* With ([\d,]+) rows, which need ([\d.]+ [kM]B) more memory, .*", note)
        assert found, note
        rows, enough = (int(text.replace(",", "")) for text in found.groups()[:2])
        assert rows < enough
        enlarged = replace(own, memory_bytes=(memory << 20) + int(1.02 * parse_bytes(found[3])))
        assert set_up(large, enlarged).settings["resident_rows"] == enough


@pytest.mark.parametrize(("shuffle", "rows"), [(None, 3000), (1, 3000), (1, 300), (1, 950)])
def test_the_first_sample_counts_as_it_is_read(shuffle: int | None, rows: int, tmp_path: Path) -> None:
    """Of shuffled rows the first pass holds the chunks that lie within it, unless they are few: they are read twice."""
    problem = make_problem(3, 20_000)
    source = ingest(problem.X, tmp_path / "rows.zarr", problem.y, shuffle=shuffle, chunk_bytes=6000)
    options = TrainOptions(C=0.01, threads=1, resident_rows=rows)
    plan, real = plan_training(source, options), train(source, options)
    assert plan.taken.each_bytes == 0
    assert plan.sum_bytes(real.passes) == pytest.approx(real.read_bytes, rel=0.02)
    assert (plan.taken.once_bytes < 0.1 * source.nbytes) == (shuffle is not None)
