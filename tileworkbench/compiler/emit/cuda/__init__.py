"""What CUDA C++ and PTX have words of their own for."""
