"""The families of self-checks."""

from __future__ import annotations

from nodevitals.probe import Families
from nodevitals.probes.selfcheck.execution import REFUSALS
from nodevitals.probes.selfcheck.results import KINDS, OUTCOMES

# Of what the last check of a device found; one that was refused changes nothing.
RESULTS = tuple(one for one in OUTCOMES if one != "refused")

results = Families("selfcheck", "kind", "device", "port", kind=KINDS)
BANDWIDTH = results.gauge(
    "bandwidth_bytes_per_second",
    "Bandwidth in the last check of this device; missing where it measured none.",
)
OUTCOME = results.gauge(
    "outcome",
    "Always 1; outcome of the last check of this device. harness is a failure of the tool, which "
    "says nothing of the hardware.",
    outcome=RESULTS,
)
TIME = results.gauge("last_timestamp_seconds", "Unix time of the last check of this device.")

checks = Families("selfcheck", kind=KINDS)
EXPECTED = checks.gauge(
    "bandwidth_expected_bytes_per_second", "Bandwidth of a healthy device, as configured."
)
OFFERED = checks.gauge("offered", "Whether the node has the tool and a device for this check.")
RUNS = checks.counter("runs_total", "Number of results, by outcome.", outcome=RESULTS)
REFUSED = checks.counter(
    "refused_total",
    "Number of times that a check that was due was not started, or was stopped, by the reason.",
    reason=REFUSALS,
)
SECONDS = checks.counter("seconds_total", "Time for which tools of this check ran on the node.")

ALL = (*results, *checks)
