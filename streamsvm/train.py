"""`train` and its options, re-exported from streamsvm.runs and streamsvm.options under a short name."""

from streamsvm.options import TrainOptions
from streamsvm.runs.results import Event, Listener, Result
from streamsvm.runs.train import train
from streamsvm.runs.tune import train_together

__all__ = ["Event", "Listener", "Result", "TrainOptions", "train", "train_together"]
