"""Stochastic gradient descent within a budget of support vectors (Wang et al. 2012; Qaadan & Glasmachers 2018)."""
