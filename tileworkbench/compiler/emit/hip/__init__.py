"""Program -> HIP C++ for AMD's GPUs: the dialect of the C-like core."""
