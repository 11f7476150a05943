"""Runs probes in processes of their own and takes in what they return."""
