"""Object stores: byte ranges of objects, and uploads."""
