"""A dataset on disk: chunks, manifest, arrays, and edits."""
