"""What outlives a restart: pending writes and the SQLite file."""
