"""SQLite files of the state directory: opening them, checks, and what concerns alerts."""
