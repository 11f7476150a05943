"""Probe `profile`."""
