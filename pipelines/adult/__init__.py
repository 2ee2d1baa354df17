"""Adult, from text to test accuracy."""
