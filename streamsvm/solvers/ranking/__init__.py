"""Cutting planes for rankings (Joachims 2006, "Training Linear SVMs in Linear Time", KDD, Algorithm 2)."""
