"""A stream: a kernel model of bounded size learns from rows as they arrive, and is first tested on each batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import streamsvm
from streamsvm import BudgetedSVC


def watch_sensor(seed: int, batches: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of 250 measurements (x, y), and for each whether it lies on the inner of two rings."""
    random = np.random.default_rng(seed)
    for _ in range(batches):
        inner = random.random(250) < 0.5
        radius = np.where(inner, 1.0, 2.0) + 0.25 * random.normal(size=250)
        angle = random.uniform(0, 2 * np.pi, 250)
        yield np.column_stack((radius * np.cos(angle), radius * np.sin(angle))), np.where(inner, "inner", "outer")


model = BudgetedSVC(C=10.0, gamma=2.0, budget=40, expected_rows=5000)
right = []
for number, (X, place) in enumerate(watch_sensor(0, 20)):
    if number:
        right.append(model.score(X, place))  # before the model has seen these rows
    model.partial_fit(X, place, classes=["inner", "outer"])
print(f"batches 2 to 6: {np.mean(right[:5]):.1%} right; the last five: {np.mean(right[-5:]):.1%}")
print(f"{len(model.support_vectors_)} support vectors after 5,000 rows; lower bound: {model.lower_bound_}")

model.save("rings.npz")
X, place = next(watch_sensor(1, 1))
same = streamsvm.load("rings.npz")
assert (same.predict(X) == model.predict(X)).all()
print(f"the saved model, on a new batch: {same.score(X, place):.1%}")
