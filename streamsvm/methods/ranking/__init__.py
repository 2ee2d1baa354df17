"""Cutting planes for rankings (Joachims 2006)."""
