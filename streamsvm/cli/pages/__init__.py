"""Pages of HTML about runs, models and grids, which need no script, no other file and no network."""
