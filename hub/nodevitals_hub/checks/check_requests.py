"""Types that all requests for checks share: nodes, and refusals."""

from __future__ import annotations

from typing import Literal

import msgspec

from nodevitals.checks.model import CheckId
from nodevitals.document import Problem, ProblemsError
from nodevitals.errors import Wording
from nodevitals.quantities import shown
from nodevitals_hub.settings.hub import LimitsSettings

RefusalKind = Literal["invalid", "forbidden", "not_found", "conflict", "busy", "unavailable"]
"""invalid: HTTP 422. forbidden: 403. not_found: 404. conflict: 409, nodes are in use, or the check
has ended. busy: 429, the queue is full. unavailable: 503, the store cannot be written or read."""


class RefusedError(ProblemsError):
    """A request was refused; each problem is one line with the reason and what to do."""

    def __init__(self, kind: RefusalKind, *problems: str | Problem) -> None:
        super().__init__(*problems)
        self.kind = kind


def missing(identity: str, limits: LimitsSettings) -> Wording:
    """Why there is no check with an id; for one that a hub may have had, what removes it."""
    try:
        msgspec.convert(identity, CheckId)
    except msgspec.ValidationError:
        return Wording("no check {name}", name=shown(identity))
    return Wording(
        "no check {name}: the hub removes checks after {days} days (limits.keep), and the oldest"
        " above {count} (limits.keep_checks)",
        name=identity,
        days=f"{limits.keep / 86400:.3g}",
        count=limits.keep_checks,
    )


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node that checks can be run on: its labels, and the address of its agent's fabric API."""

    name: str
    host: str
    port: int
    labels: dict[str, str] = {}

    @property
    def url_host(self) -> str:
        """The host as it is written in a URL: an IPv6 address in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host
