"""Facts about nodes, from the /metrics of their agents.

In: members. Out: which agents answer, how many devices are up, which nodes are in use. A fact that
an agent does not expose is missing. Requests are bounded in number, time and bytes, and the stored
facts in number and characters: an agent may be hostile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from nodevitals.checks.deadlines import within
from nodevitals.checks.model import Check, NodeVerdict, RunResult
from nodevitals.checks.verdicts.bus import Machine
from nodevitals.probes.fabric.tools.report import Report, failed
from nodevitals_hub.checks import peer_sights
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.checks.members import Members
from nodevitals_hub.checks.peer_sights import PeerSight
from nodevitals_hub.checks.runners import PlannedRun, Runner, skipped
from nodevitals_hub.launch.agent_metrics import Scraper
from nodevitals_hub.launch.agent_replies import body_of, decompressed
from nodevitals_hub.launch.machine_facts import machine_of
from nodevitals_hub.settings.agents import AgentsSettings
from nodevitals_hub.store.check_store import Issued

SECONDS = 5.0
ALL_SECONDS = 15.0
FRESH_SECONDS = 10.0
MAX_BYTES = 16 * 1024 * 1024
MAX_SAMPLES = 5000
"""Maximum samples of the families below; a node with 64 devices has some hundreds."""
MAX_NAMED = 64
MAX_CHARACTERS = 100
"""Maximum length of a name, such as that of a port or a version."""
AT_A_TIME = 256
log = logging.getLogger(__name__)
_PREFIXES = tuple(
    f"nodevitals_{name}"
    for name in (
        "accelerator_up",
        "accelerator_info",
        "accelerators_expected",
        "accelerators_present",
        "accelerators_baseline",
        "accelerator_processes",
        "jobs_processes",
        "build_info",
        "rdma_port_up",
        "rdma_port_rate_bytes_per_second",
        "rdma_port_expected_rate_bytes_per_second",
        "rdma_device_info",
        "ascend_link_speed_bytes_per_second",
        "nvidia_nvlinks_expected",
        "network_up",
        "probe_success",
        "mount_present",
    )
)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a node's agent exposes; None where it does not."""

    problem: str = ""
    """Why there are no facts, in one line."""
    devices_up: int | None = None
    devices_expected: int | None = None
    processes: int | None = None
    """Processes of jobs that have accelerators open."""
    version: str = ""
    rdma_devices: dict[str, bool] = {}
    """RDMA devices, and whether port 1 of each is active."""
    interfaces: dict[str, bool] = {}
    """Physical network interfaces and bonds, and whether each is up."""
    ports_down: tuple[str, ...] = ()
    """RDMA ports that are not active."""
    failing_probes: tuple[str, ...] = ()
    mounts_missing: tuple[str, ...] = ()
    machine: Machine = Machine()

    @property
    def in_use(self) -> bool:
        """Whether a job is known to use the node."""
        return bool(self.processes)


def parse(text: str) -> Facts:
    """The facts in an exposition. Raises ValueError."""
    # The library's parser takes 20 us per sample, and most samples belong to other families.
    lines = [line for line in text.split("\n") if line.startswith(_PREFIXES)]
    if len(lines) > MAX_SAMPLES:
        raise ValueError(f"over {MAX_SAMPLES} samples of devices and probes")
    samples = [
        sample
        for family in text_string_to_metric_families("\n".join(lines) + "\n")
        for sample in family.samples
    ]

    def values(name: str) -> list[float]:
        return [sample.value for sample in samples if sample.name == f"nodevitals_{name}"]

    def labels(name: str, value: float, *keys: str) -> tuple[str, ...]:
        texts = (
            ":".join(filter(None, (sample.labels.get(key, "") for key in keys)))[:MAX_CHARACTERS]
            for sample in samples
            if sample.name == f"nodevitals_{name}" and sample.value == value
        )
        return tuple(sorted(texts)[:MAX_NAMED])

    up = values("accelerator_up")
    present = values("accelerators_present")
    expected = values("accelerators_expected") or values("accelerators_baseline")
    # The same processes as listed by the driver and in procfs; procfs without those of pods.
    processes = [
        sum(counts) for counts in map(values, ("accelerator_processes", "jobs_processes")) if counts
    ]
    return Facts(
        devices_up=_whole(up) if up else _whole(present),
        devices_expected=_whole(expected),
        processes=_whole([max(processes)]) if processes else None,
        version=next(iter(labels("build_info", 1.0, "version")), ""),
        rdma_devices={
            sample.labels["device"]: sample.value == 1.0
            for sample in samples
            if sample.name == "nodevitals_rdma_port_up" and sample.labels["port"] == "1"
        },
        interfaces={
            sample.labels["interface"]: sample.value == 1.0
            for sample in samples
            if sample.name == "nodevitals_network_up"
        },
        ports_down=labels("rdma_port_up", 0.0, "device", "port"),
        failing_probes=labels("probe_success", 0.0, "probe", "target"),
        mounts_missing=labels("mount_present", 0.0, "mountpoint"),
        machine=machine_of(samples),
    )


def _whole(values: list[float]) -> int | None:
    """The sum; None without values. Raises ValueError for an impossible number of devices."""
    total = sum(values)
    if not 0 <= total < 1e9:
        raise ValueError(f"{total:g} devices")
    return int(total) if values else None


def problems_of(facts: Facts, devices: int | None = None) -> list[Report]:
    """The problems of a node; `devices` is the number that a test needs."""
    if facts.problem:
        return [failed("harness", facts.problem)]
    reports = []
    wanted = devices if devices is not None else facts.devices_expected
    if wanted is not None and facts.devices_up is not None and facts.devices_up < wanted:
        reports.append(failed("no_device", f"{facts.devices_up} of {wanted} devices are up"))
    if devices is None:
        reports += [failed("port_down", f"port {port} is down") for port in facts.ports_down]
        # The agent did look: what is missing is a fault of the node, and its probe is not another.
        missing = {f"mounts:{mount}"[:MAX_CHARACTERS] for mount in facts.mounts_missing}
        reports += [
            failed("no_device", f"{mount} is not mounted") for mount in facts.mounts_missing
        ]
        reports += [
            failed("harness", f"probe {name} fails")
            for name in facts.failing_probes
            if name not in missing
        ]
    return reports


class Nodes:
    """Reads facts from agents."""

    def __init__(self, settings: AgentsSettings) -> None:
        """Raises ProbeError for unusable files."""
        self._scraper = Scraper(settings, SECONDS, AT_A_TIME)
        self._slots: asyncio.Semaphore | None = None
        self._known: dict[str, tuple[float, Facts]] = {}

    async def facts(self, members: Iterable[Member], fresh: bool = False) -> dict[str, Facts]:
        """Facts by name, not older than FRESH_SECONDS, or read now; within ALL_SECONDS."""
        listed = list(members)
        if self._slots is None:  # Python 3.9 binds it to the loop that runs
            self._slots = asyncio.Semaphore(AT_A_TIME)
        tasks = {
            member.name: asyncio.ensure_future(self._of(member, self._slots, fresh))
            for member in listed
        }
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=ALL_SECONDS)
            for task in late:
                task.cancel()
        unknown = Facts(problem=f"/metrics: not asked within {ALL_SECONDS:g} s")
        return {name: task.result() if task.done() else unknown for name, task in tasks.items()}

    async def sights(self, members: Iterable[Member]) -> dict[str, list[PeerSight]]:
        """What nodes report about their peers, read now; without those that do not answer."""
        listed = list(members)
        found = await asyncio.gather(*map(self._sights, listed))
        return {
            member.name: sights
            for member, sights in zip(listed, found, strict=True)
            if sights is not None
        }

    async def _sights(self, member: Member) -> list[PeerSight] | None:
        try:
            data, encoding = await within(self._read(member), SECONDS)
            text = decompressed(data, encoding, MAX_BYTES).decode("utf-8")
            return await asyncio.to_thread(peer_sights.parse, text, member.name)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            log.info("%s: /metrics: %s", member.name, str(error)[:200] or type(error).__name__)
            return None

    async def refresh(self) -> None:
        """Read the authority and the password where they have changed. Raises ProbeError."""
        await asyncio.to_thread(self._scraper.refresh)

    async def close(self) -> None:
        """Close the connections."""
        await self._scraper.close()

    async def _of(self, member: Member, slots: asyncio.Semaphore, fresh: bool) -> Facts:
        known = None if fresh else self._known.get(member.name)
        if known is not None and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        async with slots:
            try:
                data, encoding = await within(self._read(member), SECONDS)
                facts = await asyncio.to_thread(_parsed, data, encoding)
            except TimeoutError:
                facts = Facts(problem=f"/metrics: no response in {SECONDS:g} s")
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
                facts = Facts(problem=f"/metrics: {str(error)[:200] or type(error).__name__}")
        self._known[member.name] = (time.monotonic(), facts)
        return facts

    async def _read(self, member: Member) -> tuple[bytes, str]:
        async with self._scraper.stream(member) as response:
            if response.status_code == 401:
                raise ValueError("HTTP 401: the login is wrong (agents.metrics_basic_auth)")
            if response.status_code != 200:
                raise ValueError(f"HTTP {response.status_code}")
            data = await body_of(response, MAX_BYTES)
            return data, response.headers.get("content-encoding", "")


def _parsed(data: bytes, encoding: str) -> Facts:
    return parse(decompressed(data, encoding, MAX_BYTES).decode("utf-8"))


class NodeRunner(Runner):
    """Runs checks of the kind `node`, from each agent's metrics. Reading twice does no harm."""

    def __init__(self, nodes: Nodes, members: Members) -> None:
        self._nodes, self._members = nodes, members

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """One report per problem, or one that is ok."""
        del check, issued, again
        member = self._members.by_name.get(run.nodes[0])
        if member is None:
            return skipped(run, "not_listed")
        started, clock = time.time(), time.monotonic()
        facts = (await self._nodes.facts([member]))[member.name]
        problems = problems_of(facts)
        return RunResult(
            number=run.number,
            nodes=run.nodes,
            # The page shows the last failed report.
            reports=tuple(reversed(problems)) or (Report(outcome="ok"),),
            started=started,
            seconds=time.monotonic() - clock,
            outputs=(msgspec.json.encode(facts).decode(),),
            versions={"nodevitals": facts.version} if facts.version else {},
        )


def short_of_devices(facts: Mapping[str, Facts], devices: int) -> list[NodeVerdict]:
    """Findings on nodes that have fewer devices up than a test needs."""
    return [
        NodeVerdict(subject=name, scope="node", reason="hardware", message=report.message)
        for name, own in sorted(facts.items())
        for report in problems_of(own, devices)
        if report.reason == "no_device"
    ]
