"""The command line: its arguments, its progress, and the pages that it writes."""
