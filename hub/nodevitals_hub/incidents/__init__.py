"""Incidents: faults that people repair, and drills."""
