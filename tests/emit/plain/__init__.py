"""Plain C++: the threads of a block take turns on one processor. A test of the seam, no target."""
