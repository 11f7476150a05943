"""Requests for checks: their parameters, their runs and their cost."""
