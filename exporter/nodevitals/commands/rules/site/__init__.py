"""Applies a site's values to the shipped rules: the result is rule files for Prometheus."""
