"""Trained models: what they hold, what they predict, how good they are."""
