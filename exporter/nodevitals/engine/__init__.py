"""Runs each probe in a process of its own and handles the results."""
