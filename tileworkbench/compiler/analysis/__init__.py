"""Facts about a program. An analysis never changes the program, and its results are frozen."""
