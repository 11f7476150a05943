"""Finds the cause of a failed or slow collective by bisection."""
