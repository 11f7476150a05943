"""State that outlives a restart: the journal of pending writes, and the SQLite database."""
