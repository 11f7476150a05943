"""Pair tests from the command line, over ssh."""
