"""Tables: the roles of columns, their values, and the encoder."""
