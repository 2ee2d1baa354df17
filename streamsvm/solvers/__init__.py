"""Solvers: they plan passes and digest totals, and never read data."""
