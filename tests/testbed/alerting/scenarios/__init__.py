"""All scenarios, by theme."""

from testbed.alerting.scenarios import agents, devices, load, network, planned, services, storage
from testbed.alerting.scenarios.table import SCENARIOS

__all__ = ["SCENARIOS", "agents", "devices", "load", "network", "planned", "services", "storage"]
