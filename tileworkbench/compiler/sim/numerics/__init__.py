"""What rounding does to a program: the simulator runs it a second time in float64, and compares."""
