"""The command line: arguments, progress and pages."""
