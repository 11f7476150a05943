"""The results of checks beyond their own page: each test by itself, and two checks compared."""
