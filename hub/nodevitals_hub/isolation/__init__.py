"""Which nodes are taken out of service, and when they may return."""
