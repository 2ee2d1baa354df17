"""Cell types transferred from labelled donors to new donors, and marker genes."""
