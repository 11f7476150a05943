"""Reachability of other nodes from this one."""
