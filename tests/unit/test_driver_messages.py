"""Every form of the drivers' lines is parsed, and no other line is; a NIC's failure ends."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nodevitals.linux.kmsg import Record
from nodevitals.probe import Readings
from nodevitals.probes.kernel_log import lines
from nodevitals.probes.kernel_log.families import (
    DEVICE_EVENT_LAST,
    DEVICE_EVENTS,
    FAMILIES,
    NIC_FAILED,
)
from nodevitals.probes.kernel_log.lines import DRIVER_EVENTS, STARTED, parse_driver_event
from nodevitals.probes.kernel_log.state import KernelLogState
from nodevitals.probes.kernel_log.tally import MAX_SERIES, Tally

LINES = [
    (expected, text.replace("\\n", "\n"))
    for expected, text in (
        line.split("\t", 1)
        for line in (Path(__file__).parent / "driver_messages.txt").read_text().splitlines()
        if not line.startswith(("#", '"'))
    )
]
NIC = "mlx5_core 0000:41:00.0: "
COMPROMISED = NIC + "poll_health:825:(pid 0): device's health compromised - reached miss count"
SUCCEEDED = NIC + "mlx5_health_try_recover:385:(pid 141): health recovery succeeded"
NOW = 1_700_000_000.0


@pytest.mark.parametrize(("expected", "text"), LINES)
def test_message_has_its_event_and_device(expected: str, text: str) -> None:
    event = parse_driver_event(text)
    found = "-" if event is None else f"{event.driver} {event.pci_bus_id or '.'} {event.event}"
    assert found == expected


def test_every_pattern_and_event_has_a_sample() -> None:
    nvidia = [expression for _, expression in lines._NVIDIA]
    assert all(any(one.match(text) for _, text in LINES) for one in nvidia)
    for driver, patterns in lines._BY_DRIVER.items():
        texts = [text for expected, text in LINES if expected.startswith(driver)]
        ends = [(text, match.end()) for text in texts if (match := lines._NIC.match(text))]
        for _, expression in patterns:
            assert any(expression.match(text, end) for text, end in ends), expression.pattern
    sampled = {expected.split(" ")[2] for expected, _ in LINES if expected != "-"}
    assert sampled == {*DRIVER_EVENTS, STARTED}


PIECES = (
    *("NVRM:", "GPU 0000:18:00.0:", "RmInitAdapter", "failed", "mlx5_core", "0000:41:00.0"),
    *("wait_func:1195:(pid", "19670)", "health", "compromised", "Fatal error detected", "ice"),
    *("Firmware", "reset", "abort,", "bnxt_en", "hns3", "timeout.", "Will cause a leak", "eth0"),
    *("NETDEV", "transmit queue 3", "timed out", "(mlx5_core)", "\n", "\x00", "\u00e9", "Link"),
)
STARTS = ("kernel: ", "audit: comm=", "x", " ", "[1.2] ", "trainer[1]: ", "\n", "NVRM: x", "\x00")


def test_million_lines_of_noise_have_no_event() -> None:
    """Parts of the drivers' lines in any order, and whole ones that do not begin the message."""
    generator = random.Random(20261104)
    choices, texts = generator.choices, [text for expected, text in LINES if expected != "-"]
    for number in range(1_000_000):
        if number % 4:
            line = " ".join(choices(PIECES, k=1 + int(generator.random() * 7)))
        else:
            line = choices(STARTS)[0] + choices(texts)[0]
        assert parse_driver_event(line) is None, line


def run(state: KernelLogState, *texts: str, now: float = NOW) -> Readings:
    """Return the readings of a run that read these messages."""
    readings = Readings(families=FAMILIES)
    tally = Tally(state, readings, now=now, monotonic=1000.0 + now - NOW, live=True)
    for text in texts:
        tally.add_record(Record(1, 0.0, text))
    tally.finish()
    return readings


def failed(readings: Readings) -> dict[str, float]:
    """Return by PCI bus id which NICs have failed."""
    return {s.labels[0]: s.value for s in readings.samples if s.family == NIC_FAILED.name}


def test_nic_has_failed_until_its_driver_reports_a_recovery_or_a_start() -> None:
    state = KernelLogState(boot_id="this")
    assert failed(run(state, NIC + "firmware version: 28.39.1002")) == {}
    assert failed(run(state, COMPROMISED)) == {"0000:41:00.0": 1}
    assert failed(run(state)) == {"0000:41:00.0": 1}
    assert failed(run(state, SUCCEEDED)) == {"0000:41:00.0": 0}
    assert failed(run(state, COMPROMISED, NIC + "firmware version: 28.39.1002")) == {
        "0000:41:00.0": 0
    }
    assert failed(run(state, NIC + "firmware version: 28.39.1002", COMPROMISED)) == {
        "0000:41:00.0": 1
    }
    other = SUCCEEDED.replace("41:00.0", "41:00.1")
    assert failed(run(state, other)) == {"0000:41:00.0": 1}
    assert failed(run(state.in_boot("next"))) == {}


def test_events_of_gpus_and_unnamed_devices_fail_no_nic() -> None:
    state = KernelLogState()
    readings = run(
        state,
        "NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x24:0xffff:1220)",
        "NETDEV WATCHDOG: ens1f0np0 (mlx5_core): transmit queue 3 timed out",
        NIC + "wait_func:1195:(pid 7): ENABLE_HCA(0x104) timeout. Will cause a leak",
    )
    assert failed(readings) == {}
    counts = {s.labels: s.value for s in readings.increments if s.family == DEVICE_EVENTS.name}
    assert counts == {
        ("0000:18:00", "nvidia", "init_failed"): 1,
        ("", "mlx5_core", "transmit_timeout"): 1,
        ("0000:41:00.0", "mlx5_core", "command_timeout"): 1,
    }
    assert [event.device for event in readings.events] == [
        "0000:18:00",
        "mlx5_core",
        "0000:41:00.0",
    ]


def test_time_of_the_last_event_stays_until_the_next() -> None:
    state = KernelLogState()
    run(state, COMPROMISED)
    for now, texts, expected in ((NOW + 60, (), NOW), (NOW + 90, (COMPROMISED,), NOW + 90)):
        readings = run(state, *texts, now=now)
        times = [s.value for s in readings.samples if s.family == DEVICE_EVENT_LAST.name]
        assert times == [expected]


def test_number_of_devices_is_bounded() -> None:
    state = KernelLogState()
    texts = [f"mlx5_core {number:04x}:41:00.0: Fatal error 1 detected" for number in range(2000)]
    readings = run(state, *texts)
    assert len(failed(readings)) == MAX_SERIES
    assert len(readings.increments) < MAX_SERIES + 50
