"""The client side of a test that this node starts: open it on the peer, run the tool, close it.

In: a test and a pairing, of the plan or of an order. Out: a `StartedTest`.
"""

from __future__ import annotations

import time
import uuid

from msgspec.structs import replace

from nodevitals.linux.host import Host
from nodevitals.probes.common.addresses import ListedTarget
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.gate import GATE_REASONS
from nodevitals.probes.fabric.guard import Guard
from nodevitals.probes.fabric.order_entry import OrderEntry
from nodevitals.probes.fabric.orders import ORDER_ENDS
from nodevitals.probes.fabric.plan import Pairing
from nodevitals.probes.fabric.protocol import (
    FabricClient,
    Opened,
    OpenRequest,
    Refused,
    TransportError,
)
from nodevitals.probes.fabric.report import REASONS, Reason, Report, failed
from nodevitals.probes.fabric.results import StartedTest
from nodevitals.probes.fabric.server_side import CLOSE_SECONDS, OPEN_SECONDS
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tool_process import (
    ToolMissingError,
    ToolProcess,
    is_connected,
    tcp_tables,
)


class ClientSide:
    """Runs tests with peers."""

    def __init__(self, host: Host, client: FabricClient, guard: Guard) -> None:
        self._host = host
        self._client = client
        self._guard = guard

    def run(
        self,
        test: TestSettings,
        pairing: Pairing,
        peer: ListedTarget,
        slot: int,
        order: OrderEntry | None = None,
    ) -> StartedTest:
        """One test with the target of this pairing, which is at `peer`."""
        started = time.time()
        result = StartedTest(
            test=test,
            source=pairing.source,
            peer=pairing.target,
            time=started,
            ordered=order is not None,
            forced=order is not None and order.order.force,
        )
        reason = self._guard.refusal(test, order)
        if reason:
            return replace(result, skipped=reason)
        problem = measurement.problem_of(test, self._host, pairing.source)
        if problem is not None:
            return replace(result, report=problem)
        identity = uuid.uuid4().hex
        of_order = order.order.id if order else ""
        request = OpenRequest(
            id=identity, source=pairing.source, slot=slot, test=test.key, order=of_order
        )
        try:
            opened = self._open(peer, request)
        except TransportError as error:
            if error.connected:
                self.close(peer, identity)
            return replace(result, report=failed(error.reason, str(error)))
        if isinstance(opened, Refused):
            return _refused(result, opened)
        clock = time.monotonic()
        report, stopped = self._run_tool(test, peer, opened.port, order)
        seconds = time.monotonic() - clock
        ended = self.close(peer, identity)
        size = self._guard.charge(test, started, seconds)
        if report is not None and report.outcome != "ok":
            stopped = _stopped_by_peer(ended) or stopped
        result = replace(result, seconds=seconds, bytes=size, skipped=stopped)
        return replace(result, report=None if stopped else report)

    def _open(self, peer: ListedTarget, request: OpenRequest) -> Opened | Refused:
        """Open the test. Tries twice where a response got lost, as the second request gets the same
        response; a lost connection request was repeated by TCP itself.
        """
        try:
            return self._client.open(peer.host, peer.port, request, OPEN_SECONDS + 1)
        except TransportError as error:
            if error.reason == "harness" or not error.connected:
                raise
            return self._client.open(peer.host, peer.port, request, OPEN_SECONDS + 1)

    def close(self, peer: ListedTarget, identity: str) -> str:
        """Close a test, or an order. Where that request is lost, the peer's own deadline ends its
        side.
        """
        for _ in range(2):
            try:
                return self._client.close(peer.host, peer.port, identity, CLOSE_SECONDS + 1).ended
            except TransportError as error:
                if not error.connected:
                    break
        return ""

    def _run_tool(
        self, test: TestSettings, peer: ListedTarget, port: int, order: OrderEntry | None
    ) -> tuple[Report | None, str]:
        """The report and '', or None and why the tool was stopped."""
        try:
            process = ToolProcess(measurement.command(test, self._host, port, peer.host))
        except ToolMissingError as error:
            return failed("tool_missing", str(error)), ""
        try:
            reason = self._guard.watch(process, test.timeout, order=order)
            if reason == "timeout":
                return measurement.unfinished(test, is_connected(port, tcp_tables())), ""
            if reason:
                return None, reason
            return measurement.judge(test, process.text(), process.status() or 0), ""
        finally:
            if order is not None:
                order.keep(process.text())
            process.end()


def _stopped_by_peer(ended: str) -> str:
    """Why a test failed as the peer's side had ended: its gate closed, or the hub ended the order
    there; '' where it had not.
    """
    if ended in GATE_REASONS:
        return "peer_busy"
    return ended if ended in ORDER_ENDS else ""


def _refused(result: StartedTest, refusal: Refused) -> StartedTest:
    """The result after a refusal: busy, not planned by the peer's lists, or a failure there."""
    if refusal.refusal == "busy" and refusal.reason in ORDER_ENDS:
        return replace(result, skipped=refusal.reason)
    if refusal.refusal == "busy":
        return replace(result, skipped="peer_busy")
    if refusal.refusal == "plan_differs" and not result.ordered:
        return replace(result, skipped="plan_differs")
    # A peer of another version may have reasons that are unknown here.
    fallback: Reason = "harness"
    reason = next((one for one in REASONS if one == refusal.reason), fallback)
    return replace(result, report=failed(reason, refusal.message))
