"""Training: the loop of a run, its folder, grid search, calibrated probabilities, and updates of existing models."""
