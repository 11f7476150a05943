"""Executes checks: through the agents' fabric API, and through launchers of collectives."""
