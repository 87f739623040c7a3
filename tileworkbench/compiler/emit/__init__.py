"""Programs to text: LLVM IR for processors, CUDA C++ for GPUs."""
