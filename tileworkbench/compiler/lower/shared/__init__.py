"""What the lowerings of tile operators share."""
