"""From a dataset and options to a model: the loop, the folder of a run, grids, and the plan before a run."""
