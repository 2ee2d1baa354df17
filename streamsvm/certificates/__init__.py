"""Proofs of P and D: sums over all rows, with bounds of their rounding."""
