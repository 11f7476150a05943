"""Probe `mounts`."""
