"""Probe `kernel_log`."""
