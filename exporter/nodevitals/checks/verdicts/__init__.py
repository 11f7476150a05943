"""Judges results: their figures, slow and failed parts, and the verdict."""
