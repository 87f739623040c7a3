"""Which elements of each tensor the blocks and threads of a run touch: counted, and as data."""
