"""Tile operators: one module per family, each with `infer_layout` and `lower`."""
