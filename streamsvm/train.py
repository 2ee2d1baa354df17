"""`train` and its options, under the name that scripts know them by; they are in streamsvm.training."""

from streamsvm.options import TrainOptions
from streamsvm.training.result import Event, Listener, Result
from streamsvm.training.together import train_together
from streamsvm.training.train import train

__all__ = ["Event", "Listener", "Result", "TrainOptions", "train", "train_together"]
