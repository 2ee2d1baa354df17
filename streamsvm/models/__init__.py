"""Trained models: their files, their predictions, and measures of the predictions."""
