"""Alerts of a simulated fleet: its series over time, the rules in promtool, a real Alertmanager."""
