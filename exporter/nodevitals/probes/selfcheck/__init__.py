"""Self-checks under load inside one node: bandwidth tests that need no second node."""
