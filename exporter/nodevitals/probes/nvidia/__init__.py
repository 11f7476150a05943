"""Probe `nvidia`.

`nvml` and the modules that import it import pynvml (5 MB, 27 ms): only workers may import them.
"""
