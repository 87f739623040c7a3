"""Programs in the CPU stage as LLVM IR: micro-kernels, packing, vector mathematics."""
