"""The tools of self-checks: the command line of each, and the parser of its output."""
