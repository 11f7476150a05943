"""Probe `network`."""
