"""SGD within a budget of support vectors (Qaadan & Glasmachers 2018)."""
