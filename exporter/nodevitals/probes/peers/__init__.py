"""Other nodes, as seen from this one: who they are, and whether they can be reached."""
