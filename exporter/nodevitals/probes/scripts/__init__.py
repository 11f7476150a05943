"""Probe `scripts`."""
