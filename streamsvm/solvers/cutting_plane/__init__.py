"""Cutting planes for linear models (Joachims 2006, "Training Linear SVMs in Linear Time", KDD)."""
