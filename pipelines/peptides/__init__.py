"""Peptide rescoring by Percolator's method."""
