"""Problems: what is learned from the labels of the rows."""
