"""CUDA kernels, their compilation and launch through CuPy."""
