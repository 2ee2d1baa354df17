"""Verification: P and D of a stored model, recomputed from its rows."""
