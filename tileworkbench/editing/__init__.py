"""Kernels whose IR or generated code was edited by hand: `kernel.edit_ir`, `kernel.edit_source`."""
