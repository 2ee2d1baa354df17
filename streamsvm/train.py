"""`train` and its options, under the name that scripts know them by; they are in streamsvm.training."""

from streamsvm.training.train import Event, Result, TrainOptions, train

__all__ = ["Event", "Result", "TrainOptions", "train"]
