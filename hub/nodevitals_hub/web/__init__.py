"""The hub's HTTP server: REST, pages, access."""
