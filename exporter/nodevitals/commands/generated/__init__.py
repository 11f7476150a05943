"""Generates texts from the commands and the settings; `make generate` writes them."""
