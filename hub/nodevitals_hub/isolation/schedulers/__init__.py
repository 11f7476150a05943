"""How each scheduler takes a node out of service: one file per scheduler."""
