"""Measuring: times of calls, the ceilings of this machine, and where a kernel lies under them."""
