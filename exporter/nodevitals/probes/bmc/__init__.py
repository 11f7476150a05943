"""Probe `bmc`."""
