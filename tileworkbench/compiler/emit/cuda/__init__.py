"""The parts of CUDA C++ and PTX that other C-like languages do not share."""
