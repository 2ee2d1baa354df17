"""Training on data several times larger than memory."""
