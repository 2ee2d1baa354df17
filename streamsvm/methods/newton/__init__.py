"""Newton's method for smooth losses: a pass brings the gradient and the curvature of all rows."""
