"""The hub's settings: what can be written in its configuration file."""
