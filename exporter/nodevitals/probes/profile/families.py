"""The families of the probe `profile`."""

from __future__ import annotations

from nodevitals.probe import Families

STATES = ("conforming", "differing", "unknown")

metrics = Families("profile")
CONFORMS = metrics.gauge(
    "conforms",
    "Whether what was found is what the profile wants; missing where it is unknown.",
    "check",
)
CHECK_INFO = metrics.gauge(
    "check_info",
    "Always 1; what the profile wants of a fact and what was found; empty where there is none.",
    *("check", "wanted", "found"),
)
CHECKS = metrics.gauge("checks", "Number of checks of the profile by their state.", state=STATES)
INFO = metrics.gauge("info", "Always 1; name of the profile.", "name")
