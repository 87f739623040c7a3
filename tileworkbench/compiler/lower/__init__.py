"""Tile operators become code: vectors of a CPU, threads of a GPU, threads as loops of a CPU."""
