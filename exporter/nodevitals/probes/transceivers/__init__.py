"""Probe `transceivers`."""
