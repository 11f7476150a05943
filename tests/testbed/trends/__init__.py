"""Synthetic traces of what wears out, and what the shipped rules predict of them.

`traces` makes series with a known day at which each reaches its limit, or none; `verdicts` has
promtool evaluate the rules over them, once per day; `score` compares the two.
"""
