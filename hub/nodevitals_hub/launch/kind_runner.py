"""The default runner: pairs through agents, collectives through a launcher, node checks through
the agents' metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from nodevitals.checks.launchers.launcher import Launcher
from nodevitals.checks.launchers.manifests import JobOptions
from nodevitals.checks.launchers.mpirun import MpirunLauncher
from nodevitals.checks.model import (
    BusExpectation,
    Check,
    CheckRequest,
    NodeVerdict,
    RunResult,
)
from nodevitals.checks.verdicts import bus
from nodevitals.errors import Wording
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.checks.members import Members
from nodevitals_hub.checks.peer_sights import Sights
from nodevitals_hub.checks.runners import PlannedRun, Runner, skipped
from nodevitals_hub.launch.agent_orders import Agents
from nodevitals_hub.launch.collectives import CollectiveRunner
from nodevitals_hub.launch.node_checks import NodeRunner, Nodes, short_of_devices
from nodevitals_hub.launch.node_watch import NodeWatch
from nodevitals_hub.launch.pair_runs import PairRunner
from nodevitals_hub.settings.hub import CollectivesSettings, HubSettings
from nodevitals_hub.store.check_store import Issued


def launcher_of(settings: CollectivesSettings) -> Launcher | None:
    """The launcher of the settings; None where collectives are refused."""
    if settings.launcher == "mpirun":
        return MpirunLauncher(settings.ssh_user)
    if settings.launcher == "none":
        return None
    # Here, because it imports lightkube.
    from nodevitals.checks.launchers.kubernetes_launcher import KubernetesLauncher

    options = JobOptions(
        image=settings.image,
        namespace=settings.namespace,
        rdma_resource=settings.rdma_resource,
        rdma_count=settings.rdma_count,
        networks=settings.networks,
        host_network=settings.host_network,
        shared_memory=settings.shared_memory,
        queue=settings.queue,
    )
    return KubernetesLauncher(settings.launcher, options)


log = logging.getLogger(__name__)


class KindRunner(Runner):
    """Chooses the runner by the kind of the check."""

    def __init__(self, settings: HubSettings, members: Members) -> None:
        """Raises ProbeError for unusable certificates, token or password."""
        self._members = members
        self.agents = Agents(settings.agents) if settings.agents else None
        self.nodes = Nodes(settings.agents) if settings.agents else None
        launcher = self._launcher = launcher_of(settings.collectives)
        watch = NodeWatch(self.nodes, members)
        self._pairs = PairRunner(self.agents, members) if self.agents else None
        self._node = NodeRunner(self.nodes, members) if self.nodes else None
        self._collectives = CollectiveRunner(launcher, watch) if launcher else None

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Execute a run."""
        runner = self._of(check.request.kind)
        if runner is None:
            return skipped(run, "not_configured")
        return await runner.run(check, run, issued, again)

    def _of(self, kind: str) -> Runner | None:
        runners: dict[str, Runner | None] = {"collective": self._collectives, "node": self._node}
        return runners.get(kind, self._pairs)

    def refusal(self, request: CheckRequest) -> str:
        """The missing section of the settings; '' where there is none."""
        if self._of(request.kind) is not None:
            return ""
        if request.kind == "collective":
            return Wording(
                "no launcher of collectives: set collectives.launcher in the hub's configuration"
            )
        return Wording(
            "the hub cannot talk with agents: write the section agents of its configuration"
        )

    async def in_use(self, request: CheckRequest) -> Sequence[str]:
        """The nodes whose agents report processes with open accelerators. For mpirun without
        agents, the nodes where ssh finds such processes, or cannot search for them.
        """
        if self.nodes is None:
            return await self._in_use_by_ssh(request)
        facts = await self.nodes.facts(self._listed(request))
        return sorted(name for name, own in facts.items() if own.in_use)

    async def _in_use_by_ssh(self, request: CheckRequest) -> Sequence[str]:
        if request.kind != "collective" or not isinstance(self._launcher, MpirunLauncher):
            return ()
        used = await self._launcher.in_use(request.nodes)
        for node, why in sorted(used.items()):
            log.warning("%s %s", node, why)
        return sorted(used)

    async def devices(self, request: CheckRequest) -> Sequence[Mapping[str, bool]]:
        """The devices that the agents expose."""
        if self.nodes is None:
            return ()
        facts = (await self.nodes.facts(self._listed(request))).values()
        if request.test.tool == "iperf3":
            return [own.interfaces for own in facts]
        return [own.rdma_devices for own in facts]

    async def sights(self, nodes: Sequence[str]) -> Sights:
        """What these nodes' agents report about their peers."""
        known = self._members.by_name
        if self.nodes is None:
            return {}
        return await self.nodes.sights(known[name] for name in nodes if name in known)

    async def findings(self, check: Check) -> Sequence[NodeVerdict]:
        """Nodes with fewer devices up than a collective needs, as their agents report now."""
        if self.nodes is None or check.request.kind != "collective":
            return ()
        facts = await self.nodes.facts(self._listed(check.request), fresh=True)
        return short_of_devices(facts, check.request.test.devices_per_node or 8)

    async def bus(self, check: Check) -> BusExpectation | None:
        """From what the agents of all nodes expose."""
        if self.nodes is None or check.request.kind != "collective":
            return None
        facts = await self.nodes.facts(self._listed(check.request), fresh=True)
        if len(facts) < len(check.request.nodes):
            return None
        return bus.expected(check.request.test, [own.machine for own in facts.values()])

    def partial(self, identity: str) -> tuple[RunResult, ...]:
        """Of collectives only."""
        return () if self._collectives is None else self._collectives.partial(identity)

    def _listed(self, request: CheckRequest) -> list[Member]:
        known = self._members.by_name
        return [known[name] for name in request.nodes if name in known]

    async def refresh(self) -> None:
        """Read certificates, token and password where they have changed. Raises ProbeError."""
        if self.agents is not None:
            await self.agents.refresh()
        if self.nodes is not None:
            await self.nodes.refresh()

    async def close(self) -> None:
        """Leave orders to their leases: the next hub collects their results."""
        if self._pairs is not None:
            self._pairs.leaving = True
