"""Benchmarks: every performance claim, measured in one run beside what it is compared with."""
