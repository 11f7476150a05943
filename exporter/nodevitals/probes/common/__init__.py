"""What several probes share. No probe of its own."""
