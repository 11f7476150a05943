"""What the hub starts checks with: the agents' fabric API, and launchers of collectives."""
