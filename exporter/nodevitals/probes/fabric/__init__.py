"""Fabric tests: who tests whom and when, may it, what the tool said, and what came of it."""
