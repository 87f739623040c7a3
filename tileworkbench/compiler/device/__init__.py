"""What runs kernels: the host, NVIDIA's driver, the simulator, the PTX interpreter."""
