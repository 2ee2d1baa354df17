"""Object stores: ranges of objects, uploads, and the cache on disk."""
