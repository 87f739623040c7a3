"""What a call does on every device: its arguments are checked and become launch slots; forks and
garbage collection stay out of its way."""
