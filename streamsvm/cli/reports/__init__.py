"""Self-contained HTML pages about runs, models and grids, without scripts or network access."""
