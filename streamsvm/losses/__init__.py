"""The losses of rows, of pairs of rows, and of classes."""
