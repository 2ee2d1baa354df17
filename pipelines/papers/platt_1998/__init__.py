"""The tables of Platt 1998."""
