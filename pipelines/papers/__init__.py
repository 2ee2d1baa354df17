"""Published experiments, repeated with streamsvm."""
