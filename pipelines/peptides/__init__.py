"""Peptide rescoring as Percolator does it."""
