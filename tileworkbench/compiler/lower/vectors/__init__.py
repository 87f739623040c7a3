"""Tile operators as loops over vectors, for a CPU: one module per family, each
with `infer_layout` and `lower`."""
