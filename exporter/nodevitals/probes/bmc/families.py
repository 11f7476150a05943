"""The families of the probe `bmc`."""

from __future__ import annotations

from nodevitals.probe import Families

PARTS = ("controller", "sensors", "power", "log")
REASONS = ("timeout", "stuck", "start", "too_long", "permission", "no_answer", "malformed")
SUPPLY_STATES = (
    "ok",
    "failed",
    "predictive_failure",
    "input_lost",
    "configuration_error",
    "inactive",
    "absent",
)
FAN_STATES = ("ok", "warning", "failed", "absent")
TEMPERATURE_STATES = ("ok", "warning", "critical")
BATTERY_STATES = ("ok", "low", "failed", "absent")
REDUNDANCY_KINDS = ("power", "fan", "other")
REDUNDANCY_STATES = ("full", "degraded", "lost")
EVENT_TYPES = (
    "temperature",
    "voltage",
    "fan",
    "processor",
    "power_supply",
    "power_unit",
    "memory",
    "drive",
    "bus",
    "board",
    "slot",
    "battery",
    "other",
)
SEVERITIES = ("critical", "warning")

metrics = Families("bmc")
UP = metrics.gauge("up", "Whether the BMC answered in the last run.")
INFO = metrics.gauge(
    "info",
    "Always 1; firmware of the BMC, and its manufacturer: a number in IPMI, a name in Redfish.",
    "firmware",
    "manufacturer",
)
UNREADABLE = metrics.gauge(
    "unreadable",
    "Always 1; why this part could not be read in the last run.",
    part=PARTS,
    reason=REASONS,
)
SUPPLY_STATE = metrics.gauge(
    "power_supply_state",
    "Always 1; state of the power supply, as the BMC reports it.",
    "sensor",
    state=SUPPLY_STATES,
)
REDUNDANCY = metrics.gauge(
    "redundancy",
    "Always 1; state of the redundancy of power supplies or fans.",
    "sensor",
    kind=REDUNDANCY_KINDS,
    state=REDUNDANCY_STATES,
)
FAN_SPEED = metrics.gauge("fan_speed_rpm", "Revolutions per minute of the fan.", "sensor")
FAN_DUTY = metrics.gauge(
    "fan_duty_ratio", "Share of its full speed that the fan is driven with.", "sensor"
)
FAN_STATE = metrics.gauge(
    "fan_state",
    "Always 1; state of the fan by the limits of the BMC.",
    "sensor",
    state=FAN_STATES,
)
TEMPERATURE = metrics.gauge("temperature_celsius", "Temperature of the sensor.", "sensor")
TEMPERATURE_STATE = metrics.gauge(
    "temperature_state",
    "Always 1; state of the temperature by the limits of the BMC.",
    "sensor",
    state=TEMPERATURE_STATES,
)
INLET = metrics.gauge(
    "inlet_temperature_celsius", "Highest temperature of the air that enters the chassis."
)
POWER = metrics.gauge("power_watts", "Power that the chassis draws now.")
BATTERY_STATE = metrics.gauge(
    "battery_state",
    "Always 1; state of a battery: of the clock, or of a controller.",
    "sensor",
    state=BATTERY_STATES,
)
LOG_ENTRIES = metrics.gauge("event_log_entries", "Number of entries in the system event log.")
LOG_USED = metrics.gauge("event_log_used_ratio", "Share of the system event log that is used.")
LOG_OVERFLOW = metrics.gauge(
    "event_log_overflow", "Whether the system event log lost entries because it was full."
)
EVENTS = metrics.counter(
    "events_total",
    "Number of new entries in the system event log that report a fault.",
    type=EVENT_TYPES,
    severity=SEVERITIES,
)
