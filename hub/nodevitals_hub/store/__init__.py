"""SQLite files of the state directory: opening them, checks, and the tables of alerts."""
