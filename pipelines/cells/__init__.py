"""Labels of cells, carried over to new donors, and marker genes."""
