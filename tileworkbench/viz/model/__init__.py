"""From records to view-models: small dictionaries and typed byte buffers, without Jupyter."""
