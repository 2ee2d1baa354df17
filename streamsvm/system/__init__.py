"""Services of the operating system: files, locks, signals, memory."""
