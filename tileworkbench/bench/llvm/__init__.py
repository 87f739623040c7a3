"""How long a core takes for a block, read off the code that LLVM makes of it."""
