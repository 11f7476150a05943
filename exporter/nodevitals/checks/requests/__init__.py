"""What is asked for: requests for checks, what they run, and what they cost."""
