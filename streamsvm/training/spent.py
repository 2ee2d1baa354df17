"""What was spent on rows before a training: the passes that found the feature map which makes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spent:
    """Reads of all rows, bytes that were read from storage, seconds, and the memory that was projected."""

    passes: int = 0
    read_bytes: int = 0
    seconds: float = 0.0
    projected_bytes: int = 0


NOTHING = Spent()
