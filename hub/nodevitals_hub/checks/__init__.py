"""Requests for checks, their queue and their results."""
