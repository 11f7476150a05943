"""Probe `disks`."""
