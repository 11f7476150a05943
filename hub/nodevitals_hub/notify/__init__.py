"""Notifications: which alerts go to which channels and owners, and when."""
