"""From generated text to a call on this machine: LLVM, threads, interrupts, arguments, the object
cache."""
