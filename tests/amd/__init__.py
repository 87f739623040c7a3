"""AMD's targets: machines, lowering, text, and what executes it."""
