"""Linear probes over embeddings."""
