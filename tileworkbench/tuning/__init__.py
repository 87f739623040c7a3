"""Choosing among configurations of a kernel by measuring them, and the inputs to do it with."""
