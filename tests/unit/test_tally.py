"""The counts of one run of the probe `kernel_log`, with clocks as arguments."""

from __future__ import annotations

import pytest

from nodevitals.linux.kmsg import Record
from nodevitals.probe import Readings
from nodevitals.probes.common.device_names import DeviceName, DeviceNames
from nodevitals.probes.kernel_log.families import (
    DEVICE_EVENT_LAST,
    FAMILIES,
    SXID_ERRORS,
    SXID_LAST,
    XID_ERRORS,
    XID_LAST,
)
from nodevitals.probes.kernel_log.messages import NvmlXids
from nodevitals.probes.kernel_log.state import KernelLogState
from nodevitals.probes.kernel_log.tally import NAME_SECONDS, PAIR_SECONDS, ROW_SECONDS, Tally
from nodevitals.probes.kubernetes.messages import OomKills
from nodevitals.wire import decode

BUS_ID = "0000:1a:00"
NAMES = DeviceNames({BUS_ID: DeviceName("1", "GPU-1")})
UNIX_TIME = 1_700_000_000.0


def xid(code: int) -> Record:
    return Record(1, 0.0, f"NVRM: Xid (PCI:{BUS_ID}): {code}, pid=7, name=trainer, text")


def tally(
    state: KernelLogState,
    *records: Record,
    monotonic: float = 1000.0,
    live: bool = True,
    clock: float = UNIX_TIME,
) -> Readings:
    """Return the readings of a run that read the log to its end; `clock` is the time of boot by
    the node's clock.
    """
    readings = Readings(families=FAMILIES)
    run = Tally(state, readings, now=clock + monotonic, monotonic=monotonic, live=live)
    for record in records:
        run.add_record(record)
    run.add_xids_only_in_nvml()
    run.finish()
    return readings


def xids(readings: Readings) -> dict[tuple[str, ...], float]:
    """Return the Xids of a run by uuid and code, without those that are 0."""
    return {
        (sample.labels[1], sample.labels[2]): sample.value
        for sample in readings.increments
        if sample.family == XID_ERRORS.name and sample.value
    }


@pytest.fixture
def state() -> KernelLogState:
    made = KernelLogState()
    made.receive(NAMES)
    return made


POD_UID = "968a06fb-9ab9-4819-8caf-0392ddff3d9b"
CGROUP = f"/kubepods.slice/kubepods-pod{POD_UID.replace('-', '_')}.slice/cri-{'ab' * 32}.scope"


def oom_kill(cgroup: str, seconds: float, processes: int = 3) -> list[Record]:
    """What the kernel logs where memory.oom.group is set: the first one is killed twice."""
    message = "Memory cgroup out of memory: Killed process 7 (python)"
    texts = [
        f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg={cgroup},task_memcg={cgroup},task=a",
        message,
        f"Tasks in {cgroup} are going to be killed due to memory.oom.group set",
        *[message] * (processes - 1),
    ]
    return [Record(1, seconds, text) for text in texts]


def oom_kills(readings: Readings) -> int:
    """Return the number of kills that were sent for the pod."""
    found = [decode(one.body, OomKills).kills for one in readings.messages]
    return sum(kill.count for kills in found for kill in kills if kill.pod_uid == POD_UID)


def test_each_process_of_a_pod_that_is_killed_as_a_whole_counts(state: KernelLogState) -> None:
    """As in kernel_events: else OomKill would report the others as processes outside of pods."""
    readings = tally(state, *oom_kill(CGROUP, 990.0), *oom_kill("/user.slice", 990.1))
    [events] = [one.value for one in readings.increments if one.labels == ("oom_kill",)]
    assert (oom_kills(readings), events) == (3, 6)
    late = Record(1, 995.0, "Memory cgroup out of memory: Killed process 8 (other)")
    assert oom_kills(tally(state, *oom_kill(CGROUP, 990.0), late)) == 3


def test_old_kills_are_not_reported_by_a_first_run(state: KernelLogState) -> None:
    """Owners would be notified of all that the log still has when the agent is installed."""
    old = oom_kill(CGROUP, 10.0, 1)
    assert oom_kills(tally(state, *old, monotonic=5000.0, live=False)) == 0
    assert oom_kills(tally(state, *oom_kill(CGROUP, 4500.0, 1), monotonic=5000.0, live=False)) == 1
    state.sequence = 7
    assert oom_kills(tally(state, *old, monotonic=5000.0, live=False)) == 1


def test_xid_of_a_named_gpu_is_counted_at_once(state: KernelLogState) -> None:
    readings = tally(state, xid(13), xid(13), xid(79))
    assert xids(readings) == {("GPU-1", "13"): 2, ("GPU-1", "79"): 1}
    last = [sample for sample in readings.samples if sample.family == XID_LAST.name]
    assert {(sample.labels[2], sample.value) for sample in last} == {
        ("13", UNIX_TIME + 1000),
        ("79", UNIX_TIME + 1000),
    }


def test_codes_that_rules_name_are_0_before_their_first_event(state: KernelLogState) -> None:
    counts = {
        sample.labels: sample.value
        for sample in tally(state).increments
        if sample.family == XID_ERRORS.name
    }
    assert counts["1", "GPU-1", "79", "reboot_node"] == 0


def test_xid_of_an_unnamed_gpu_waits_for_the_name() -> None:
    state = KernelLogState()
    assert xids(tally(state, xid(79), xid(79))) == {}
    assert xids(tally(state, xid(79), monotonic=1001)) == {}
    state.receive(NAMES)
    assert xids(tally(state, monotonic=1002)) == {("GPU-1", "79"): 3}
    assert xids(tally(state, monotonic=1003)) == {}


def test_xid_of_a_gpu_that_stays_unnamed_is_counted_with_its_bus_id() -> None:
    state = KernelLogState()
    tally(state, xid(79), xid(13))
    assert xids(tally(state, monotonic=1000 + NAME_SECONDS - 0.1)) == {}
    assert xids(tally(state, monotonic=1000 + NAME_SECONDS)) == {
        (BUS_ID, "79"): 1,
        (BUS_ID, "13"): 1,
    }


@pytest.mark.parametrize("log_first", [True, False])
def test_xid_from_log_and_nvml_is_counted_once(state: KernelLogState, log_first: bool) -> None:
    """NVML's message comes with or after the record: the log is always read before it counts."""
    if log_first:
        assert xids(tally(state, xid(79))) == {("GPU-1", "79"): 1}
        state.receive(NvmlXids([(BUS_ID, 79)]))
        assert xids(tally(state, monotonic=1000 + PAIR_SECONDS)) == {}
    else:
        state.receive(NvmlXids([(BUS_ID, 79)]))
        assert xids(tally(state, xid(79))) == {("GPU-1", "79"): 1}


def test_xid_only_from_nvml_is_counted(state: KernelLogState) -> None:
    tally(state, xid(79), xid(48))
    state.receive(NvmlXids([(BUS_ID, 79), (BUS_ID, 79), (BUS_ID, 13)]))
    assert xids(tally(state, monotonic=1001)) == {("GPU-1", "79"): 1, ("GPU-1", "13"): 1}


def test_record_and_nvml_event_far_apart_are_two_xids(state: KernelLogState) -> None:
    tally(state, xid(79))
    state.receive(NvmlXids([(BUS_ID, 79)]))
    assert xids(tally(state, monotonic=1001 + PAIR_SECONDS)) == {("GPU-1", "79"): 1}


def test_history_gets_one_row_per_device_and_event_in_a_minute(state: KernelLogState) -> None:
    assert [event.state for event in tally(state, *[xid(79)] * 5, xid(13)).events] == [
        "xid 79",
        "xid 13",
    ]
    assert tally(state, xid(79), monotonic=1000 + ROW_SECONDS - 1).events == []
    assert len(tally(state, xid(79), monotonic=1000 + ROW_SECONDS).events) == 1


def test_sxid_is_counted_with_the_name_of_its_switch() -> None:
    record = Record(1, 0.0, "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Fatal, Link 30 text")
    readings = tally(KernelLogState(), record)
    assert [s.labels for s in readings.increments if s.family == SXID_ERRORS.name] == [
        ("nvswitch3", "0000:05:00", "12028", "reset_device")
    ]


def test_records_from_before_the_first_run_have_the_kernels_time(state: KernelLogState) -> None:
    """Later records have just been written: the kernel's clock for records drifts."""
    record = Record(1, 400.0, "Out of memory: Killed process 1 (x)")
    assert tally(state, record, live=False).events[0].time == UNIX_TIME + 400
    assert tally(KernelLogState(), record, live=True).events[0].time == UNIX_TIME + 1000


def test_only_the_names_outlive_a_boot(state: KernelLogState) -> None:
    state = state.in_boot("first")
    state.sequence = 7
    tally(state, xid(79))
    assert state.in_boot("first") is state
    next_boot = state.in_boot("second")
    assert next_boot == KernelLogState(boot_id="second", devices=NAMES.by_bus_id)


SXID = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Fatal, Link 30 text"
INIT_FAILED = "NVRM: GPU 0000:1a:00.0: RmInitAdapter failed! (0x23:0x65:1438)"


@pytest.mark.parametrize("step", [1200.0, -1200.0])
def test_clock_that_is_set_moves_the_times_of_earlier_events(
    state: KernelLogState, step: float
) -> None:
    """So that the clock minus the time is still the age of the event."""

    def times(readings: Readings) -> set[tuple[str, float]]:
        last = (XID_LAST.name, SXID_LAST.name, DEVICE_EVENT_LAST.name)
        return {(one.family, one.value) for one in readings.samples if one.family in last}

    families = {XID_LAST.name, SXID_LAST.name, DEVICE_EVENT_LAST.name}
    before = tally(state, xid(79), Record(2, 0.0, SXID), Record(3, 0.0, INIT_FAILED))
    assert times(before) == {(family, UNIX_TIME + 1000) for family in families}
    read_apart = tally(state, monotonic=1002, clock=UNIX_TIME + 0.01)
    assert times(read_apart) == times(before)
    for _ in range(2):
        after = tally(state, monotonic=1004, clock=UNIX_TIME + step)
        assert times(after) == {(family, UNIX_TIME + step + 1000) for family in families}


def test_clock_that_is_set_moves_the_time_of_an_xid_without_a_name() -> None:
    state = KernelLogState()
    tally(state, xid(79))
    later = tally(state, monotonic=1000 + NAME_SECONDS, clock=UNIX_TIME + 1200)
    assert [one.value for one in later.samples if one.family == XID_LAST.name] == [
        UNIX_TIME + 1200 + 1000
    ]


def test_last_time_of_each_sxid_is_kept() -> None:
    state = KernelLogState()
    tally(state, Record(1, 0.0, SXID), monotonic=1000)
    tally(state, Record(2, 0.0, SXID.replace("12028", "20034")), monotonic=1002)
    readings = tally(state, Record(3, 0.0, SXID), monotonic=1004)
    found = [(one.labels, one.value) for one in readings.samples if one.family == SXID_LAST.name]
    assert sorted(found) == [
        (("nvswitch3", "0000:05:00", "12028", "reset_device"), UNIX_TIME + 1004),
        (("nvswitch3", "0000:05:00", "20034", "reset_device"), UNIX_TIME + 1002),
    ]
