"""The constraint-reduced interior-point method of Jung, O'Leary & Tits 2008 (CRSVM) for linear SVMs."""
