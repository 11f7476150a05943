"""Texts of notifications, in English and Chinese."""
