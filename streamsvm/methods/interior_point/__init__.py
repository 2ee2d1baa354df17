"""A constraint-reduced interior-point method (Jung, O'Leary & Tits 2008)."""
