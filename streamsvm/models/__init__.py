"""Trained models: files, predictions, and measures of the predictions."""
