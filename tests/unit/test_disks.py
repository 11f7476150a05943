"""Probe `disks`: the parsers of health pages, of smartctl's output and of sysfs; the inventory."""

from __future__ import annotations

import ctypes
import json
import random
import threading
from functools import partial
from typing import Any

import pytest

from nodevitals.document import Problem
from nodevitals.probes.disks import families, nvme, smartctl
from nodevitals.probes.disks.arrays import parse_progress
from nodevitals.probes.disks.block import Disk, Inventory, parse_stat
from nodevitals.probes.disks.health import Health, HealthError
from nodevitals.probes.disks.reader import Call, Reader
from nodevitals.probes.disks.settings import DisksSettings, RaidDisks
from testbed.disks import ata, identify, nvme_output, page, refused, scsi
from testbed.node import wait_until

ALL_ONES = (1 << 128) - 1


def parsed(document: Any, status: int | None = None) -> Health:
    """The health in an output of smartctl, with the exit status that it names."""
    status = document["smartctl"]["exit_status"] if status is None else status
    health = smartctl.parse_health(json.dumps(document) + "\n", status)
    assert health is not None
    return health


def test_command_has_the_size_and_number_of_the_kernel() -> None:
    """Struct nvme_passthru_cmd and NVME_IOCTL_ADMIN_CMD of linux/nvme_ioctl.h, on 64 bits."""
    assert nvme.COMMAND_BYTES == 72
    assert nvme.ADMIN_COMMAND == 0xC0484E41
    offsets = {"nsid": 4, "metadata": 16, "addr": 24, "data_len": 36, "cdw10": 40, "timeout_ms": 64}
    for name, offset in offsets.items():
        field = getattr(nvme._AdminCommand, name)
        assert field.offset == offset, name
    assert ctypes.alignment(nvme._AdminCommand) == 8


def test_no_disk_waits_for_ever_where_a_round_takes_longer_than_the_interval() -> None:
    """With many disks that answer slowly, the first ones are due again before the last ones."""
    reader = Reader(interval_seconds=1e-9, hung_seconds=60.0)
    read: list[str] = []
    calls: dict[str, Call] = {f"sd{n}": partial(_note, read, f"sd{n}") for n in range(9)}
    for _ in range(50):
        reader.refresh(calls, until=0.0)  # there is time to start two calls only
        _wait_for(reader)
    assert set(read) == set(calls)
    counts = [read.count(name) for name in calls]
    assert 2 * min(counts) > max(counts)


def test_disk_that_hangs_is_not_asked_again_and_holds_up_no_other() -> None:
    reader = Reader(interval_seconds=1e-9, hung_seconds=0.0)
    answers, asked = threading.Event(), list[str]()

    def hang(name: str) -> Health:
        asked.append(name)
        answers.wait(60)
        return Health(temperature=40)

    slow = {name: partial(hang, name) for name in ("nvme0", "nvme1", "nvme2")}
    read: list[str] = []
    calls: dict[str, Call] = {**slow, "nvme3": partial(_note, read, "nvme3")}
    for _ in range(5):
        reader.refresh(calls, until=0.0)
    wait_until(lambda: read)
    assert sorted(asked) == ["nvme0", "nvme1", "nvme2"]
    assert reader.busy
    problem = reader.problem("nvme0")
    assert problem is not None
    assert (problem.reason, reader.health("nvme0")) == ("hung", None)
    # Its device was removed: what is known of it stays until the call returns.
    reader.refresh({}, until=0.0)
    assert set(reader._slots) >= set(slow)
    answers.set()
    _wait_for(reader)
    reader.refresh({}, until=0.0)
    assert reader._slots == {}
    assert not reader.busy


def _note(read: list[str], name: str) -> Health:
    read.append(name)
    return Health()


def _wait_for(reader: Reader) -> None:
    """Until no call is in flight."""
    with reader._changed:
        assert reader._changed.wait_for(lambda: not reader._begun, 20)


def test_every_field_of_the_health_page() -> None:
    health = nvme.parse_health(
        page(warnings=0b001101, media_errors=4, log_entries=9, used=120, spare=7, kelvin=350)
    )
    active = {name for name, on in health.warnings.items() if on}
    assert active == {"spare_low", "reliability_degraded", "read_only"}
    assert tuple(health.warnings) == families.WARNINGS
    assert (health.spare, health.spare_threshold, health.used) == (0.07, 0.1, 1.2)
    assert (health.media_errors, health.error_log_entries, health.unsafe_shutdowns) == (4, 9, 7)
    assert (health.power_on_seconds, health.temperature) == (3_600_000, 77)
    assert health.written_bytes == 2_000_000 * 512_000
    assert health.read_bytes == 5_000_000 * 512_000


def test_reserved_bits_of_the_warnings_are_no_warning() -> None:
    assert not any(nvme.parse_health(page(warnings=0b11000000)).warnings.values())


def test_largest_number_of_16_bytes_is_unknown_and_the_next_is_finite() -> None:
    health = nvme.parse_health(page(media_errors=ALL_ONES, units_written=ALL_ONES - 1))
    assert health.media_errors is None
    assert health.written_bytes == pytest.approx(float(1 << 128) * 512_000)


@pytest.mark.parametrize(("kelvin", "celsius"), [(0, None), (65535, None), (273, 0), (199, None)])
def test_temperature_that_no_disk_has_is_unknown(kelvin: int, celsius: float | None) -> None:
    assert nvme.parse_health(page(kelvin=kelvin)).temperature == celsius


def test_share_over_one_hundred_percent_is_unknown() -> None:
    assert nvme.parse_health(page(spare=255)).spare is None
    assert nvme.parse_health(page(used=255)).used == 2.55


@pytest.mark.parametrize("data", [b"", bytes(512), b"\xff" * 512, page()[:511]])
def test_page_without_content_is_malformed(data: bytes) -> None:
    """What a controller returns that has fallen off the bus is no healthy disk."""
    with pytest.raises(HealthError) as caught:
        nvme.parse_health(data)
    assert caught.value.reason == "malformed"


def test_any_page_is_parsed() -> None:
    random.seed(7)
    for _ in range(500):
        health = nvme.parse_health(random.randbytes(512))
        assert health.used is not None
        assert 0 <= health.used <= 2.55


def test_limit_of_the_temperature() -> None:
    assert nvme.parse_temperature_limit(identify(343)) == 70
    assert nvme.parse_temperature_limit(bytes(4096)) is None
    assert nvme.parse_temperature_limit(b"") is None


def test_sata_disk() -> None:
    health = parsed(ata(raw_5=8, raw_197=2, raw_198=1, raw_199=3, left=40, logged=5))
    assert health.sectors == {"reallocated": 8, "pending": 2, "offline_uncorrectable": 1}
    assert (health.crc_errors, health.error_log_entries, health.passed) == (3, 5, True)
    assert health.used == pytest.approx(0.6)
    assert (health.temperature, health.power_on_seconds) == (35, 7_200_000)
    assert (health.standby, health.warnings, health.spare) == (False, {}, None)
    assert (health.model, health.serial, health.firmware) == (
        "Example HDD 8TB",
        "EXHDD0001",
        "EX01",
    )


def test_wear_of_the_standard_comes_before_that_of_an_attribute() -> None:
    assert parsed({**ata(left=40), "endurance_used": {"current_percent": 7}}).used == 0.07
    assert parsed(ata()).used is None


def test_sas_disk() -> None:
    health = parsed(scsi(defects=3, uncorrected=2, non_medium=6))
    assert (health.sectors, health.media_errors) == ({"grown_defects": 3}, 2)
    assert (health.non_medium_errors, health.used) == (6, 0.12)
    assert (health.temperature, health.temperature_limit) == (40, 65)


def test_nvme_disk_through_smartctl() -> None:
    health = parsed(nvme_output(critical_warning=4, available_spare=9))
    assert [name for name, on in health.warnings.items() if on] == ["reliability_degraded"]
    assert (health.spare, health.spare_threshold, health.temperature_limit) == (0.09, 0.1, 70)
    assert parsed(nvme_output(media_errors=ALL_ONES)).media_errors is None


def test_bits_of_the_exit_status() -> None:
    def found(status: int) -> set[str]:
        health = parsed(ata(status=status))
        return {name for name, on in health.findings.items() if on}

    assert found(0) == set()
    assert found(1 << 2) == set()  # a command failed: what was read counts
    assert found(1 << 4) == {"attribute_failing"}
    assert found(1 << 5) == {"attribute_failed_before"}
    assert found(1 << 6) == {"errors_logged"}
    assert found(1 << 7) == {"self_test_failed"}
    assert parsed(ata(status=1 << 3)).passed is False


def test_sleeping_disk_is_in_standby_and_nothing_else() -> None:
    document = refused("/dev/sda", "Device is in STANDBY mode, exit(2)")
    assert parsed(document) == Health(standby=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Smartctl open device: /dev/sda failed: Permission denied", "permission"),
        ("Smartctl open device: /dev/sda failed: Operation not permitted", "permission"),
        ("Smartctl open device: /dev/sda failed: No such device", "gone"),
        ("Smartctl open device: /dev/sda failed: No such file or directory", "device_file_missing"),
        ("Smartctl open device: /dev/sda [SAT] failed: Input/output error", "io_error"),
        ("", "io_error"),
    ],
)
def test_disk_that_is_not_opened(text: str, reason: str) -> None:
    with pytest.raises(HealthError) as caught:
        parsed(refused("/dev/sda", text))
    assert caught.value.reason == reason


def test_disk_without_smart_data_has_none() -> None:
    without = {key: value for key, value in ata().items() if not key.startswith(("smart_", "ata"))}
    for document in (without, ata() | {"smart_support": {"available": False}}):
        assert smartctl.parse_health(json.dumps(document), 4) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "smartctl 6.6: unrecognized option '--json=c'",
        json.dumps(ata())[:300],
        "{" * 100_000,
        "[1, 2]",
        "null",
        "{}",
        '{"smartctl": {"exit_status": NaN}}',
        "\0\xff\x1b[31m",
    ],
)
def test_half_and_garbled_output_is_malformed(text: str) -> None:
    with pytest.raises(HealthError) as caught:
        smartctl.parse_health(text, 0)
    assert caught.value.reason == "malformed"


def test_values_of_other_types_are_unknown() -> None:
    document = ata()
    document["temperature"] = {"current": "hot"}
    document["power_on_time"] = [1]
    document["smart_status"] = {"passed": "yes"}
    document["serial_number"] = "EX\n0001"
    document["model_name"] = 7
    document["ata_smart_attributes"]["table"] = [
        None,
        {"id": "5"},
        {"id": 5, "raw": {"value": -1}},
        {"id": 197, "raw": {"value": 1e300}},
        {"id": 198, "raw": 3},
        {"id": 199, "raw": {"value": True}},
    ]
    health = parsed(document)
    assert (health.temperature, health.power_on_seconds, health.passed) == (None, None, None)
    assert (health.sectors, health.crc_errors) == ({}, None)
    assert (health.serial, health.model) == ("", "")


def test_any_cut_output_is_parsed_or_malformed() -> None:
    text = json.dumps(scsi())
    for end in range(0, len(text), 7):
        with pytest.raises(HealthError):
            smartctl.parse_health(text[:end], 0)


def test_messages_on_standard_error_do_not_matter() -> None:
    text = f"warning: x\n{json.dumps(ata())}\nsomething on standard error\n"
    health = smartctl.parse_health(text, 0)
    assert health is not None
    assert health.temperature == 35


def test_counts_of_block_io() -> None:
    counts = parse_stat("  100 5 2000 300 200 6 4000 500 1 700 800 10 0 8000 20 30 40\n")
    assert counts is not None
    assert counts.operations == {"read": 100, "write": 200, "discard": 10, "flush": 30}
    assert counts.bytes == {"read": 1_024_000, "write": 2_048_000, "discard": 4_096_000}
    assert counts.seconds == {"read": 0.3, "write": 0.5, "discard": 0.02, "flush": 0.04}
    assert (counts.in_flight, counts.busy_seconds) == (1, 0.7)
    older = parse_stat("1 2 3 4 5 6 7 8 9 10 11")
    assert older is not None
    assert older.operations == {"read": 1, "write": 5}


@pytest.mark.parametrize(
    "text", ["", "1 2 3", "NaN " * 11, "-1 " * 11, f"{10**30} " * 11, "1 2 3 4 5 6 7 8 9 10 x"]
)
def test_other_texts_are_no_counts(text: str) -> None:
    assert parse_stat(text) is None


def test_progress_of_an_array() -> None:
    assert parse_progress("25 / 100") == 0.25
    assert parse_progress("200 / 100") == 1.0
    for text in ("none", "delayed", "", "1 / 0", "-1 / 2", "nan / nan"):
        assert parse_progress(text) is None


def disk(name: str, serial: str = "", place: str = "") -> Disk:
    """A local disk."""
    serial, place = serial or f"S{name}", place or f"P{name}"
    return Disk(name=name, transport="pcie", counted=True, serial=serial, place=place)


def gone(inventory: Inventory) -> list[str]:
    """The names of the missing disks."""
    return [one.name for one in inventory.gone]


BOTH = [disk("nvme0"), disk("nvme1")]


def test_disk_that_vanishes_is_missing_until_it_is_back() -> None:
    known = Inventory().seen(BOTH, frozenset(), "b1")
    assert (known.highest, gone(known)) == (2, [])
    known = known.seen(BOTH[:1], frozenset(), "b1")
    assert (known.highest, gone(known)) == (2, ["nvme1"])
    # The boot cannot be read: still the same.
    assert gone(known.seen(BOTH[:1], frozenset(), "")) == ["nvme1"]
    known = known.seen(BOTH, frozenset(), "b1")
    assert (known.highest, gone(known)) == (2, [])


def test_disk_that_comes_back_under_another_name_is_not_missing() -> None:
    known = Inventory().seen(BOTH, frozenset(), "b1").seen(BOTH[:1], frozenset(), "b1")
    known = known.seen([BOTH[0], disk("nvme2", "Snvme1", "Pnvme1")], frozenset(), "b1")
    assert (known.highest, gone(known)) == (2, [])


def test_one_of_two_missing_disks_is_replaced() -> None:
    three = [*BOTH, disk("nvme2")]
    known = Inventory().seen(three, frozenset(), "b1").seen(three[:1], frozenset(), "b1")
    known = known.seen([three[0], disk("nvme3", "NEW", "Pnvme1")], frozenset(), "b1")
    assert (known.highest, gone(known)) == (3, ["nvme2"])


def test_next_boot_knows_only_what_it_finds() -> None:
    known = Inventory().seen(BOTH, frozenset(), "b1").seen(BOTH[:1], frozenset(), "b2")
    assert (known.highest, gone(known)) == (1, [])


@pytest.mark.parametrize("retired", ["Snvme1", "nvme1"])
def test_forgotten_disk_is_not_missing(retired: str) -> None:
    known = Inventory().seen(BOTH, frozenset(), "b1")
    for _ in range(2):
        known = known.seen(BOTH[:1], frozenset({retired}), "b1")
        assert (known.highest, gone(known)) == (1, [])


@pytest.mark.parametrize(
    "kind", ["megaraid,0", "sat+megaraid,12", "aacraid,0,0,1", "cciss,3", "areca,1/2"]
)
def test_disks_of_raid_controllers_are_accepted(kind: str) -> None:
    settings = DisksSettings(raid=(RaidDisks(device="sda", types=(kind,)),))
    assert [*settings.problems()] == []


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"device_directory": "dev"}, "device_directory"),
        ({"raid": (RaidDisks(device="../x", types=("megaraid,0",)),)}, "raid[0].device"),
        ({"raid": (RaidDisks(device="sda", types=("--set=on",)),)}, "raid[0].types"),
        ({"raid": (RaidDisks(device="sda", types=("megaraid,0", "megaraid,0")),)}, "raid[0].types"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], path: str) -> None:
    problems: list[Problem] = [*DisksSettings(**settings).problems()]
    assert [one.path for one in problems] == [path]
