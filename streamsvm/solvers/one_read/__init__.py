"""The solver `one-read`: linear problems in one or two reads, with a ball that contains the solution."""
