"""Programs in the SIMT stage as text of a C-like language."""
