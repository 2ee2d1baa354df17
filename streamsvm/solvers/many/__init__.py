"""Many problems at once: each class against the rest, all pairs of classes, or all labels."""
