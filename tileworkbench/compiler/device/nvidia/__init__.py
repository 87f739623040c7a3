"""Kernels on NVIDIA's devices: NVRTC, the driver, the disassembler."""
