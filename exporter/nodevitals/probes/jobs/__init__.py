"""Probe `jobs`."""
