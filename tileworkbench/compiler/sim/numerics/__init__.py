"""What rounding does to a program: the simulator runs it beside itself in float64."""
