"""The plan of a training before it runs: passes, bytes, seconds and memory."""
