"""Probe `services`."""
