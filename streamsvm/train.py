"""`train` and its options, under the name that scripts know them by; they are in streamsvm.training."""

from streamsvm.training.train import Event, Listener, Result, TrainOptions, train, train_together

__all__ = ["Event", "Listener", "Result", "TrainOptions", "train", "train_together"]
