"""The measures of a file's rows are counted as the rows are read, and keep to a limit of memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import LinearModel
from streamsvm.system.errors import MemoryBudgetError


def test_a_refusal_tells_what_the_process_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LinearModel(coef=np.ones(2), intercept=0.0, classes=np.array([-1, 1]))
    (tmp_path / "rows.svm").write_text("1 1:1\n-1 2:-1\n")
    assert evaluate(model, tmp_path / "rows.svm", memory_bytes=8 << 30)["n_rows"] == 2
    monkeypatch.setattr("streamsvm.models.evaluate.MEASURED_BYTES", 1 << 40)
    with pytest.raises(MemoryBudgetError, match="with the measures of the first 2 rows, the process needs 2"):
        evaluate(model, tmp_path / "rows.svm", memory_bytes=8 << 30)
