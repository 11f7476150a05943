"""What a test uses of its node."""
