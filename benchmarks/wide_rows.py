"""Generated rows of 4,096 features, which are eight times as large as the memory budget of a training."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import dask.array
import numpy as np

from streamsvm.ingestion.readers import ingest

WIDE, INNER, TIMES = 4096, 5, 8


def run_out_of_core(folder: Path, n_rows: int, arguments: list[str], has_target: bool = False) -> None:
    """Generate rows, train on them in a process whose memory budget is an eighth of their bytes, and print a table.

    A row is a linear function of five normal numbers; with has_target, the first of these is to be predicted. The
    arguments are those of `streamsvm train`. The folder is created here, and removed at the end.
    """
    folder.mkdir()
    try:
        drawn = dask.array.random.default_rng(0).normal(size=(n_rows, INNER), chunks=(2_000, INNER))
        mixed = np.random.default_rng(1).normal(size=(INNER, WIDE)) / np.sqrt(WIDE)
        rows, y = drawn.astype(np.float32) @ mixed.astype(np.float32), drawn[:, 0] if has_target else None
        dataset = ingest(rows, folder / "rows.zarr", y, shuffle=None, regression=has_target)
        allowed = dataset.nbytes // TIMES
        command = [sys.executable, "-m", "streamsvm", "train", str(folder / "rows.zarr"), "--out", str(folder / "run")]
        command += [*arguments, "--memory", str(allowed), "--resident-rows", "1000", "--json"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode not in (0, 3):
            sys.exit(ended.stderr)
        found = json.loads(ended.stdout)
        told = [found[name] / 1e6 for name in ("peak_memory_bytes", "projected_memory_bytes")]
        print("| rows | MB | allowed MB | peak MB | projected MB | status | passes | gap | support vectors | seconds |")
        print("|" + "---|" * 10)
        print(
            f"| {n_rows:,} | {dataset.nbytes / 1e6:.0f} | {allowed / 1e6:.0f} | {told[0]:.0f} | {told[1]:.0f} "
            f"| {found['status']} | {found['passes']} | {found['relative_gap']:.1e} | {found['n_support_vectors']:,} "
            f"| {found['seconds']:.0f} |"
        )
    finally:
        shutil.rmtree(folder)
