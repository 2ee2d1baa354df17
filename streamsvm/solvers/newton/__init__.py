"""Newton's method for smooth losses; a pass computes the gradient and the curvature over all rows."""
