"""What is done with a compiled kernel: it is called, checked, simulated, compared, explained."""
