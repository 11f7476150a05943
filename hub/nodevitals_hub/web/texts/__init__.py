"""Texts of the pages, in English and Chinese."""
