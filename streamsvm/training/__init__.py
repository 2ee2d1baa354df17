"""Training turns a dataset and options into a model.

This package holds the loop of a run, the folder of a run, grids of settings, the plan before a run, feature maps, and
the verification of a trained model.
"""
