"""Changes each isolation by one answer of Prometheus, and counts the nodes it takes out.

In: an isolation, an answer of Prometheus, settings, the ledger. Out: the changed isolation. Pure;
decisions.py decides over all isolations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.isolation.isolation_states import (
    OUT_STATES,
    chosen,
    is_clean,
    is_watched,
    lasts,
    named,
    ordinal,
    with_step,
)
from nodevitals_hub.isolation.ledger import Ledger
from nodevitals_hub.records import Fault, Isolation, IsolationState
from nodevitals_hub.settings.response import OutOfServiceSettings

END_SECONDS = 600.0
"""A waiting or refused isolation ends after this time without its faults: docs/automation.md."""
ENDED_BEFORE = "its faults ended before it was done"


class Transitions:
    """The state of one decision: it counts the nodes that the decision takes out."""

    def __init__(
        self,
        seen: Seen,
        nodes: Mapping[str, Member],
        settings: OutOfServiceSettings,
        now: float,
        faults: Sequence[Fault],
        isolations: Sequence[Isolation],
        ledger: Ledger,
    ) -> None:
        self.seen, self.nodes, self.settings, self.now = seen, nodes, settings, now
        self.ledger = ledger
        self.by_node: dict[str, list[Fault]] = {}
        for fault in faults:
            self.by_node.setdefault(fault.node, []).append(fault)
        self._sizes = Counter(member.labels.get("pool", "") for member in nodes.values())
        self._out: Counter[str] = Counter(
            self._pool(isolation.node, isolation.pool)
            for isolation in isolations
            if isolation.state in OUT_STATES and (settings.dry_run or not isolation.dry_run)
        )

    def begin(self, node: str, faults: tuple[Fault, ...], identity: str) -> Isolation:
        """A new isolation."""
        made = Isolation(
            id=identity,
            node=node,
            pool=self._pool(node),
            dry_run=self.settings.dry_run,
            state="waiting",
            faults=faults,
            present=faults,
            created=self.now,
        )
        if node not in self.nodes:
            return self._to(made, "refused", f"{node} is not on the hub's lists of nodes")
        if self.ledger.breaker.open:
            return self._to(made, "refused", f"breaker: {self.ledger.breaker.reason}")
        wait = f"its fault must last {self.settings.grace:g} s"
        return self._wait(with_step(made, self.now, wait))

    def refused_after_dry_run(self, ended: Isolation, identity: str) -> Isolation:
        """The refused isolation that replaces an isolation of a dry run that was switched off."""
        made = Isolation(
            id=identity,
            node=ended.node,
            pool=ended.pool,
            dry_run=False,
            state="refused",
            faults=ended.faults,
            present=ended.present,
            created=self.now,
        )
        return with_step(made, self.now, "its fault is older than the end of the dry run")

    def follow(self, before: Isolation) -> Isolation:
        """An isolation after this answer."""
        isolation = self._updated(before)
        if is_watched(before):
            return self._forget_ended(isolation)
        if isolation.dry_run and not self.settings.dry_run:
            return self._ended(isolation, "the dry run was switched off")
        if isolation.state == "waiting":
            if self.settings.dry_run and not isolation.dry_run:
                isolation = replace(isolation, dry_run=True)
            return self._wait(isolation)
        if isolation.state == "refused":
            if isolation.clean_for >= END_SECONDS or self._is_gone(isolation):
                return self._ended(isolation, "its faults ended")
            return isolation
        if isolation.restoring and isolation.restoring != "hub":
            return isolation
        return (
            self._intent(isolation) if isolation.acted is None else self._out_of_service(isolation)
        )

    def _updated(self, before: Isolation) -> Isolation:
        """With the faults of this answer, and how long they or their absence have lasted."""
        now = {fault.identity: fault for fault in self.by_node.get(before.node, ())}
        # How long a fault has lasted that came back with this answer is not known.
        lasting = now.keys() & {fault.identity for fault in before.present}
        faults = [
            replace(
                now.get(old.identity, old),
                lasted=old.lasted + self.seen.elapsed if old.identity in lasting else 0.0,
            )
            if before.state == "waiting"
            else replace(now.get(old.identity, old), lasted=old.lasted)
            for old in before.faults
        ]
        isolation = before
        if before.state != "canceled":
            own = {fault.identity for fault in before.faults}
            added = [fault for name, fault in now.items() if name not in own]
            present = [f for f in (*faults, *added) if f.identity in self.seen.lasting]
            isolation = replace(before, faults=(*faults, *added), present=tuple(present))
            if added and before.acted is not None:
                text = f"another fault: {named(added)}"
                isolation = replace(
                    with_step(isolation, self.now, text), undescribed=not before.dry_run
                )
        if before.state == "waiting":
            is_clean_now = not (now or lasts(isolation.faults, self.seen))
        else:
            is_clean_now = is_clean(isolation, self.seen)
        if not is_clean_now:
            came_back = int(before.state == "waiting" and before.clean_since is not None)
            return replace(
                isolation,
                clean_for=0.0,
                clean_since=None,
                came_back=isolation.came_back + came_back,
            )
        since, most = isolation.clean_since, max(END_SECONDS, self.settings.back.clean)
        return replace(
            isolation,
            clean_since=self.now if since is None else since,
            clean_for=0.0 if since is None else min(most, isolation.clean_for + self.seen.elapsed),
        )

    def _wait(self, isolation: Isolation) -> Isolation:
        """A waiting isolation: within the grace, or after it. A fault that comes and goes stays one
        isolation.
        """
        if not chosen(isolation.node, self.nodes, self.settings):
            return self._ended(isolation, "`where` no longer chooses its node")
        mine = {fault.identity for fault in self.by_node.get(isolation.node, ())}
        if not any(fault.identity in mine for fault in isolation.faults):
            if isolation.clean_for < END_SECONDS:
                return isolation
            times = f", {isolation.came_back} times" if isolation.came_back else ""
            return self._ended(isolation, f"its faults ended within the grace{times}")
        if self.ledger.breaker.open:
            return self._to(isolation, "refused", f"breaker: {self.ledger.breaker.reason}")
        grace = self.settings.grace
        over = any(f.identity in mine and f.lasted >= grace for f in isolation.faults)
        return self._admit(isolation) if over else isolation

    def _admit(self, isolation: Isolation) -> Isolation:
        """Decide to take the node out if the limits allow it; otherwise refuse."""
        isolation = replace(isolation, pool=self._pool(isolation.node, isolation.pool))
        refusal = self._limit(isolation.pool)
        if refusal:
            return self._to(isolation, "refused", refusal)
        again = self._again(isolation)
        state: IsolationState = "kept" if again else "isolated"
        text = again or f"to be taken out of service: {named(isolation.present)}"
        self._out[isolation.pool] += 1
        self.ledger = self.ledger.with_act(isolation, self.now)
        return replace(self._to(isolation, state, text), decided=self.now)

    def _limit(self, pool: str) -> str:
        """The limit of a pool that is reached; "" for none."""
        limits, size = self.settings.limits, self._sizes[pool]
        of = f"pool {pool}" if pool else "nodes without a pool"
        out = self._out[pool]
        if out >= limits.nodes:
            return f"limit: {out} of {of} are out of service (nodes: {limits.nodes})"
        if out >= max(1, int(limits.share * size)):
            return f"limit: {out} of {size} of {of} are out of service (share: {limits.share:g})"
        hour = self.ledger.within_hour(pool, self.settings.dry_run)
        if hour >= limits.per_hour:
            return f"limit: {hour} of {of} within the hour (per_hour: {limits.per_hour})"
        return ""

    def _again(self, isolation: Isolation) -> str:
        """Why a node that was returned recently is kept out; "" where it was not returned."""
        returned = self.ledger.returned.get(isolation.node)
        times = self.ledger.times(isolation.node, isolation.dry_run)
        is_over = returned is None or self.now - returned >= self.settings.back.again_within
        if is_over or not times:  # without one, the return was of the other mode, dry run or not
            return ""
        return f"{ordinal(times + 1)} time this week: {isolation.node}, {named(isolation.present)}"

    def _intent(self, isolation: Isolation) -> Isolation:
        """An intent: it is only executed while the answers of Prometheus still support it."""
        isolation = replace(isolation, withdrawn=isolation.withdrawn or self._withdrawal(isolation))
        if isolation.tried or not isolation.withdrawn:
            return isolation  # the scheduler may have done it; its state is read first
        if isolation.withdrawn == ENDED_BEFORE:
            return self._ended(isolation, ENDED_BEFORE)
        return self._to(isolation, "refused", isolation.withdrawn)

    def _withdrawal(self, isolation: Isolation) -> str:
        """Why an intent is withdrawn; "" where it is not."""
        if not lasts(isolation.faults, self.seen):
            return ENDED_BEFORE
        if self.settings.dry_run and not isolation.dry_run:
            return "the dry run was switched on before it was done"
        if self.ledger.breaker.open and not isolation.approved_by:
            return f"breaker: {self.ledger.breaker.reason}"
        return ""

    def _out_of_service(self, isolation: Isolation) -> Isolation:
        back = self.settings.back
        is_clean_now = isolation.clean_since is not None
        if isolation.state == "testing" and not is_clean_now:
            text = "a fault came back, or its data are no longer fresh"
            return replace(self._to(isolation, "isolated", text), restoring="")
        if isolation.state != "isolated" or not is_clean_now or isolation.clean_for < back.clean:
            return isolation
        if isolation.dry_run:
            would = (
                "it would be tested and returned" if back.enabled else "a person would return it"
            )
            if back.enabled:
                self.ledger = self.ledger.with_return(isolation.node, self.now)
                return self._to(isolation, "returned", f"dry run: clean, {would}", end=True)
            return self._ended(isolation, f"dry run: clean, {would}")
        if back.enabled and not self.settings.dry_run:
            return self._to(isolation, "testing", f"clean for {isolation.clean_for:.0f} s")
        return isolation

    def _forget_ended(self, isolation: Isolation) -> Isolation:
        """A canceled isolation; its faults are removed once they have ended."""
        if isolation.clean_for >= END_SECONDS or self._is_gone(isolation):
            return replace(isolation, present=())
        return isolation

    def _is_gone(self, isolation: Isolation) -> bool:
        """Whether its node is on no list, and its faults are not in the answer."""
        return isolation.node not in self.nodes and not lasts(isolation.faults, self.seen)

    def _ended(self, isolation: Isolation, text: str) -> Isolation:
        return self._to(isolation, "ended", text, end=True)

    def _to(
        self, isolation: Isolation, state: IsolationState, text: str, end: bool = False
    ) -> Isolation:
        ended: float | None = self.now if end else isolation.ended
        return replace(with_step(isolation, self.now, text), state=state, ended=ended)

    def _pool(self, node: str, former: str = "") -> str:
        member = self.nodes.get(node)
        return former if member is None else member.labels.get("pool", "")
