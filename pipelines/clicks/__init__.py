"""A log of clicks, from text to probabilities."""
