"""Multinomial logistic regression: one smooth problem for all classes."""
