"""Facts about nodes, from the /metrics of their agents.

In: members. Out: which agents answer, how many devices are up, which nodes are in use. A fact that
an agent does not expose is missing. Requests are bounded in number, time and bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Optional

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from nodevitals.checks.model import Check, NodeVerdict, RunResult
from nodevitals.hub.checks import Member
from nodevitals.hub.members import Members
from nodevitals.hub.runners import PlannedRun, Runner, skipped
from nodevitals.hub.settings import AgentsSettings
from nodevitals.hub.store import Issued
from nodevitals.probes.fabric.report import Report, failed

SECONDS = 5.0
ALL_SECONDS = 15.0
FRESH_SECONDS = 10.0
MAX_BYTES = 16 * 1024 * 1024
AT_A_TIME = 256
_PREFIXES = tuple(
    f"nodevitals_{name}"
    for name in (
        "accelerator_up",
        "accelerators_expected",
        "accelerators_present",
        "accelerators_baseline",
        "accelerator_processes",
        "jobs_processes",
        "build_info",
        "rdma_port_up",
        "probe_success",
    )
)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent of a node exposes; None where it does not."""

    problem: str = ""
    """Why there are no facts, in one line."""
    devices_up: Optional[int] = None
    devices_expected: Optional[int] = None
    in_use: Optional[bool] = None
    version: str = ""
    ports_down: tuple[str, ...] = ()
    """RDMA ports that are not active."""
    failing_probes: tuple[str, ...] = ()


def parse(text: str) -> Facts:
    """The facts in an exposition. Raises ValueError."""
    # The parser of the library takes 20 us per sample; most samples are of other families.
    lines = [line for line in text.splitlines() if line.startswith(_PREFIXES)]
    samples = [
        sample
        for family in text_string_to_metric_families("\n".join(lines) + "\n")
        for sample in family.samples
    ]

    def values(name: str) -> list[float]:
        return [one.value for one in samples if one.name == f"nodevitals_{name}"]

    def labels(name: str, value: float, *keys: str) -> tuple[str, ...]:
        found = (
            ":".join(filter(None, (one.labels.get(key, "") for key in keys)))
            for one in samples
            if one.name == f"nodevitals_{name}" and one.value == value
        )
        return tuple(sorted(found))

    up = values("accelerator_up")
    present = values("accelerators_present")
    expected = values("accelerators_expected") or values("accelerators_baseline")
    processes = values("accelerator_processes") + values("jobs_processes")
    return Facts(
        devices_up=int(sum(up)) if up else int(sum(present)) if present else None,
        devices_expected=int(sum(expected)) if expected else None,
        in_use=any(processes) if processes else None,
        version=next(iter(labels("build_info", 1.0, "version")), ""),
        ports_down=labels("rdma_port_up", 0.0, "device", "port"),
        failing_probes=labels("probe_success", 0.0, "probe", "target"),
    )


def problems_of(facts: Facts, devices: Optional[int] = None) -> list[Report]:
    """What is wrong with a node, where a test needs so many devices."""
    if facts.problem:
        return [failed("harness", facts.problem)]
    found = []
    wanted = devices if devices is not None else facts.devices_expected
    if wanted is not None and facts.devices_up is not None and facts.devices_up < wanted:
        found.append(failed("no_device", f"{facts.devices_up} of {wanted} devices are up"))
    if devices is None:
        found += [failed("port_down", f"port {port} is down") for port in facts.ports_down]
        found += [failed("harness", f"probe {name} fails") for name in facts.failing_probes]
    return found


class Nodes:
    """Asks agents for facts."""

    def __init__(self, settings: AgentsSettings) -> None:
        self._settings = settings
        self._client = httpx.AsyncClient(
            trust_env=False,
            timeout=SECONDS,
            limits=httpx.Limits(max_connections=AT_A_TIME, max_keepalive_connections=0),
        )
        self._slots: Optional[asyncio.Semaphore] = None
        self._known: dict[str, tuple[float, Facts]] = {}

    async def facts(self, members: Iterable[Member]) -> dict[str, Facts]:
        """Facts by name, not older than FRESH_SECONDS; within ALL_SECONDS."""
        listed = list(members)
        if self._slots is None:  # Python 3.9 binds it to the loop that runs
            self._slots = asyncio.Semaphore(AT_A_TIME)
        tasks = {
            member.name: asyncio.ensure_future(self._of(member, self._slots)) for member in listed
        }
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=ALL_SECONDS)
            for task in late:
                task.cancel()
        unknown = Facts(problem=f"/metrics: not asked within {ALL_SECONDS:g} s")
        return {name: task.result() if task.done() else unknown for name, task in tasks.items()}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _of(self, member: Member, slots: asyncio.Semaphore) -> Facts:
        known = self._known.get(member.name)
        if known is not None and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        async with slots:
            try:
                facts = parse(await asyncio.wait_for(self._read(member), SECONDS))
            except asyncio.TimeoutError:
                facts = Facts(problem=f"/metrics: no response in {SECONDS:g} s")
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
                facts = Facts(problem=f"/metrics: {str(error)[:200] or type(error).__name__}")
        self._known[member.name] = (time.monotonic(), facts)
        return facts

    async def _read(self, member: Member) -> str:
        host = f"[{member.host}]" if ":" in member.host else member.host
        settings = self._settings
        url = f"{settings.metrics_scheme}://{host}:{settings.metrics_port}/metrics"
        read = bytearray()
        async with self._client.stream("GET", url) as response:
            if response.status_code != 200:
                raise ValueError(f"HTTP {response.status_code}")
            async for chunk in response.aiter_bytes():
                read += chunk
                if len(read) > MAX_BYTES:
                    raise ValueError(f"over {MAX_BYTES} bytes")
        return read.decode("utf-8")


class NodeRunner(Runner):
    """The kind `node`: what each node's own agent reports. Reading twice does no harm."""

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
            # The last failed report is the one that is shown.
            reports=tuple(reversed(problems)) or (Report(outcome="ok"),),
            started=started,
            seconds=time.monotonic() - clock,
            raw=msgspec.json.encode(facts).decode(),
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
