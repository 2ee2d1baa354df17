"""Newton's method for a smooth loss of each of many labels: a pass is products of matrices for all of them."""
