"""What only the node itself knows: its configuration, the reasons of failed runs, and the result of
one run of each probe where no agent runs.
"""

from __future__ import annotations

import os

from nodevitals import agent, probes
from nodevitals.commands.doctor.findings import OK, PROBLEM, Finding, printable
from nodevitals.config import Config, load
from nodevitals.document import DocumentError
from nodevitals.engine.plan import plan_targets
from nodevitals.linux.host import Host
from nodevitals.state import database, tables
from nodevitals.wire import ProbeResult

DEFAULT_CONFIG = "/etc/nodevitals/nodevitals.yaml"
Key = tuple[str, str]


def configuration(path: str | None) -> tuple[Config | None, Finding]:
    """The configuration of a file, or of the usual place; None where it is wrong. And a finding."""
    if path is None and os.path.exists(DEFAULT_CONFIG):
        path = DEFAULT_CONFIG
    try:
        config = load(path, probes.registered())
    except DocumentError as error:
        text = "; ".join(problem.within(str(path)) for problem in error.problems)
        remedy = f"correct it: nodevitals check-config {path}"
        return None, Finding("configuration file", PROBLEM, printable(text), remedy)
    if path is None:
        return config, Finding("configuration file", OK, "none; every setting has its default")
    return config, Finding("configuration file", OK, f"{path}: no error")


def disabled(config: Config | None) -> list[str]:
    """The probes that a configuration turns off."""
    settings = {} if config is None else config.probes
    return [name for name, one in settings.items() if one.enabled is False]


def last_reasons(config: Config | None) -> tuple[dict[Key, tuple[str, str]], str]:
    """The last state of each target or device, and its detail; or why it cannot be read."""
    directory = None if config is None else config.state_directory
    if directory is None:
        return {}, "state_directory is null" if config else "the configuration cannot be read"
    try:
        with tables.open_for_reading(directory) as connection:
            rows = database.latest(connection)
    except tables.ERRORS as error:
        return {}, printable(f"{directory}/{tables.FILE_NAME}: {error}")
    return {(row.probe, row.device): (row.state, row.detail) for row in rows}, ""


def planned(config: Config) -> list[Key]:
    """Every target of a configuration."""
    return [spec.key for spec in plan_targets(config, only=probes.registered())]


def run_probes(host: Host, config: Config, seconds: float) -> tuple[bytes, dict[Key, ProbeResult]]:
    """Run each target once, within some seconds: the exposition, and the results so far."""
    text, results = agent.run_probes(host, config, probes.registered(), seconds)
    return text.encode(), results
