"""streamsvm beside other trainers."""
