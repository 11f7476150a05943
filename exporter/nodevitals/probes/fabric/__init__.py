"""Fabric tests: bandwidth and latency between nodes."""
