"""`SVC` by features: the kernel is approximated by features of a low rank, whose linear problem is solved."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamsvm.data.dataset import Dataset
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.estimators.callbacks import listen, with_callbacks
from streamsvm.estimators.inputs import connected, open_source, warn_of_queries
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.feature_maps import KernelMap
from streamsvm.options import TrainOptions, check_numbers
from streamsvm.training.features import FeatureOptions, make_features
from streamsvm.training.result import Event, Result
from streamsvm.training.train import train


@with_callbacks  # type: ignore[untyped-decorator]
def train_on_features(svc: Any, X: Any, y: Any, sample_weight: Any) -> Result:
    """Return the result of a training on features, whose model is a sum of kernels. svc: the SVC that is fitted."""
    options, began = svc._options(), time.monotonic()
    check_numbers(options)
    listener = listen(svc, X, y, {"sample_weight": sample_weight})

    def tell(event: Event) -> bool:
        make = event.make_model
        return listener(event if make is None else replace(event, make_model=lambda: unfold(make())))

    with connected(svc), open_source(svc, X, y, sample_weight) as source, _open_folder(svc.checkpoint) as folder:
        warn_of_queries(source, options.task)
        dataset, projected, read = _make_features(svc, source, options, folder / "features.zarr")
        seconds, passes = time.monotonic() - began, dataset.meta["passes"]
        linear, resume = replace(options, kernel="linear", options={}), svc.checkpoint is not None
        result = train(dataset, linear, out=svc.checkpoint, resume=resume, client=svc.client, listener=tell)
    if result.status == "interrupted":
        raise KeyboardInterrupt(f"the checkpoint is in {svc.checkpoint}: call fit again to go on")
    model = unfold(result.model)
    listener.end(model)
    return replace(
        result,
        model=model,
        passes=result.passes + passes,
        seconds=result.seconds + seconds,
        read_bytes=result.read_bytes + read,
        projected_memory_bytes=max(projected, result.projected_memory_bytes),
        n_features=model.n_features,
    )


def unfold(model: Model) -> KernelModel:
    """Return the sum of kernels that equals w for features T' k(Z, x): its coefficients are T w, for K classes T W'."""
    assert isinstance(model, LinearModel)
    features = model.features
    assert features is not None
    assert isinstance(features.map, KernelMap)
    about = {"approximation": features.map.approximation, "rank": features.map.rank}
    return KernelModel(
        kernel=features.map.kernel,
        support_vectors=features.map.rows,
        dual_coef=model.coef @ features.map.matrix.T,
        intercept=model.intercept,
        classes=model.classes,
        scaling=features.scaling,
        feature_names=features.feature_names,
        info=about | {name: value for name, value in model.info.items() if name != "problem"},  # that of the features
    )


@contextmanager
def _open_folder(checkpoint: str | Path | None) -> Iterator[Path]:
    """Open the folder of the features: the checkpoint, where they stay, or a temporary folder."""
    if checkpoint is None:
        with TemporaryDirectory(prefix="streamsvm") as folder:
            yield Path(folder)
        return
    try:
        Path(checkpoint).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{checkpoint}: cannot be written: {error.strerror}") from error
    yield Path(checkpoint)


def _make_features(svc: Any, source: RowSource, options: TrainOptions, path: Path) -> tuple[Dataset, int, int]:
    """Return the dataset of the features, the projected memory, and the bytes that were read for them.

    Both numbers are 0 if an earlier fit made the features. InputError if there are features of other rows or
    settings.
    """
    feature_options = FeatureOptions(svc.approximation, svc.rank, options.seed)
    made_by = {"data": source.fingerprint, **asdict(feature_options), **svc._name_kernel()}
    if path.exists():
        dataset = open_dataset(path)
        if dataset.meta.get("made_by") != json.loads(json.dumps(made_by)):
            raise InputError(f"{path}: these are features of other rows or settings; choose another checkpoint")
        return dataset, 0, 0
    resume = svc.checkpoint is not None
    made = make_features(source, path, feature_options, options, made_by=made_by, resume=resume, client=svc.client)
    return made.dataset, made.projected_memory_bytes, made.read_bytes
