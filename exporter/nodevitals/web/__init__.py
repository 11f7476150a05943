"""The HTTP server of `/metrics`."""
