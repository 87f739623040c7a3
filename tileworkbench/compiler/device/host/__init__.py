"""Kernels on this machine's processor: LLVM IR text to code in this process, launches, threads."""
