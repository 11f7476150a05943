"""The HTTP server for `/metrics`."""
