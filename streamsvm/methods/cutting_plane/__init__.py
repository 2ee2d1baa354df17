"""Cutting planes for linear SVMs (Joachims 2006)."""
