"""The methods, each in a folder of its own, and the modules that they share."""
