"""The search for what makes a collective fail or slow, by bisection."""
