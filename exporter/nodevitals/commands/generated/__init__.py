"""Texts that are made from the commands and from the settings; `make generate` writes them."""
