"""Probe `rdma`."""
