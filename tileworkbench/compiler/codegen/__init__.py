"""Programs to text: LLVM IR for processors, one writer to a module."""
