"""The tile compiler: front end, passes, code generation, simulator and run time."""
