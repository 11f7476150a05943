"""Simulated nodes, built below our own code: file systems, trees, servers, and a clock."""
