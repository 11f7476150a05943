"""Probe `switches`."""
