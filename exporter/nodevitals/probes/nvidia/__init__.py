"""NVIDIA: what the probes `nvidia` and `kernel_log` know of it.

`nvml` and `card` import pynvml (5 MB, 27 ms) and so belong into workers alone.
"""
