"""Newton's method for many labels with a smooth loss; a pass consists of matrix products for all labels."""
