"""Code of single threads as loops over the threads of a block: a worker runs whole blocks."""
