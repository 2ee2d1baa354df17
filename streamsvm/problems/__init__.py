"""The problems, one class each: the loss to minimise, and the measures of a model's scores."""
