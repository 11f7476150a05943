"""Second-level monitoring of nodes for some time."""
