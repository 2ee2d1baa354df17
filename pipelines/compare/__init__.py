"""streamsvm compared with other trainers."""
