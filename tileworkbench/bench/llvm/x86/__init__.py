"""Machine code of x86: what its instructions do, and of which LLVM IR they were made."""
