"""Problems: the losses that are minimised, and the measures of a model's scores. Each is a record of functions."""
