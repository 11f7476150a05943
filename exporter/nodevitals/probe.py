"""What a probe is, what it reads, and what a run of it says. No I/O happens here.

A probe declares its families once, beside the code that fills them; a run fills a `Readings`;
the worker turns that into a `ProbeResult`, which travels to the agent as msgpack and is checked
there against the families again, because a vendor library may have trampled the worker's memory.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import msgspec

if TYPE_CHECKING:
    from nodevitals.config import ProbeSettings
    from nodevitals.linux.host import Host

Kind = Literal["gauge", "counter"]
Kept = TypeVar("Kept")
Outcome = Literal["ok", "absent", "error", "timeout", "stuck"]
OUTCOMES: tuple[Outcome, ...] = ("ok", "absent", "error", "timeout", "stuck")

PREFIX = "nodevitals_"
# The process's own figures keep the names that every Prometheus client library gives them.
PROCESS_PREFIX = "process_"
_METRIC_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LABEL_NAME = re.compile(r"[a-z][a-z0-9_]*")
# https://prometheus.io/docs/practices/naming/: base units only, ratios instead of percents.
_FOREIGN_UNITS = ("milliseconds", "minutes", "hours", "percent", "kilobytes", "megabytes", "bits")
MAX_CARRY_BYTES = 1024 * 1024
MAX_LETTER_BYTES = 16 * 1024
MAX_REASON_CHARACTERS = 64
MAX_MESSAGE_CHARACTERS = 500
MAX_TRACE_CHARACTERS = 8000


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One metric family: its name, kind, one-line help and label names.

    `closed` lists every value a label may take, for the labels that a rule may compare.
    Raises ValueError when a name breaks Prometheus' conventions.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    closed: Mapping[str, tuple[str, ...]] = {}

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(f"family {self.name}: {problem}")

    def _problems(self) -> list[str]:
        words = self.name.split("_")
        return [
            text
            for broken, text in (
                (not _METRIC_NAME.fullmatch(self.name), "not a metric name"),
                (
                    not self.name.startswith((PREFIX, PROCESS_PREFIX)),
                    f"does not start with {PREFIX}",
                ),
                (
                    (self.kind == "counter") != self.name.endswith("_total"),
                    "counters end in _total and nothing else does",
                ),
                (any(unit in words for unit in _FOREIGN_UNITS), "not in a base unit"),
                (not self.help.strip() or "\n" in self.help, "needs one line of help"),
                (
                    not all(_LABEL_NAME.fullmatch(label) for label in self.labels),
                    "not a label name",
                ),
                (len(set(self.labels)) != len(self.labels), "a label twice"),
                (
                    not set(self.closed) <= set(self.labels),
                    "a closed list for a label it does not have",
                ),
            )
            if broken
        ]

    def accepts(self, labels: tuple[str, ...]) -> bool:
        """Whether these label values fit: as many as declared, closed ones from their list."""
        if len(labels) != len(self.labels):
            return False
        for label, values in self.closed.items():
            if labels[self.labels.index(label)] not in values:
                return False
        return True


class Sample(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A family's value for one set of label values, in the family's order of labels."""

    family: str
    labels: tuple[str, ...]
    value: float


class Condition(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The state a device or target is in, for the history; only changes become rows.

    `device` is its lasting identity (uuid, serial, mount path), `state` one word.
    """

    device: str
    state: str
    detail: str = ""


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Something that happened to a device: always a row of the history.

    `time` is in seconds since the epoch; 0 means now.
    """

    device: str
    state: str
    detail: str = ""
    time: float = 0.0


class Letter(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one probe lets another know. The agent delivers it with the other's next run, and
    again until a run has answered.
    """

    probe: str
    body: bytes


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one run said. `reason` is one word, `message` one line, `trace` a traceback or ''.

    `increments` add to counters that the agent keeps; `carry` is handed to the next run;
    `stays` says that the worker waits for another one.
    """

    outcome: Outcome
    samples: tuple[Sample, ...] = ()
    increments: tuple[Sample, ...] = ()
    conditions: tuple[Condition, ...] = ()
    events: tuple[Event, ...] = ()
    letters: tuple[Letter, ...] = ()
    reason: str = ""
    message: str = ""
    trace: str = ""
    duration_seconds: float = 0.0
    carry: bytes = b""
    stays: bool = False


def clipped(result: ProbeResult) -> ProbeResult:
    """The result with its words on one line and everything of bounded length, whoever wrote it."""
    return msgspec.structs.replace(
        result,
        carry=result.carry if len(result.carry) <= MAX_CARRY_BYTES else b"",
        letters=tuple(letter for letter in result.letters if len(letter.body) <= MAX_LETTER_BYTES),
        reason=" ".join(result.reason.split())[:MAX_REASON_CHARACTERS],
        message=" ".join(result.message.split())[:MAX_MESSAGE_CHARACTERS],
        trace=result.trace[-MAX_TRACE_CHARACTERS:],
    )


class ProbeError(Exception):
    """An expected failure of what is probed (not of the probe): one word and one line."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Absent(Exception):
    """The hardware or its tool is not on this node, and nobody said that it should be."""


class Readings:
    """What a run fills in. What stands here when the run raises ProbeError is still told."""

    def __init__(
        self,
        carry: bytes = b"",
        received: tuple[bytes, ...] = (),
        forgotten: tuple[str, ...] = (),
    ) -> None:
        self.samples: list[Sample] = []
        self.increments: list[Sample] = []
        self.conditions: list[Condition] = []
        self.events: list[Event] = []
        self.letters: list[Letter] = []
        self.previous = carry
        self.received = received
        """Bodies of the letters that other probes sent here."""
        self.forgotten = frozenset(forgotten)
        """Devices that `nodevitals history forget` has retired and that were not seen since."""
        self.carry = b""

    def recalled(self, kind: type[Kept]) -> Kept | None:
        """The carry of the last run as a msgspec type; None where there is none, or where another
        version of the agent has left it in another shape.
        """
        try:
            return msgspec.msgpack.decode(self.previous, type=kind) if self.previous else None
        except msgspec.MsgspecError:
            return None

    def add(self, family: Family, value: float | None, *labels: str) -> None:
        """Record a value; None means unknown, and what is unknown is missing."""
        if value is not None:
            self.samples.append(Sample(family.name, labels, float(value)))

    def increment(self, family: Family, amount: float, *labels: str) -> None:
        """Add to a counter the agent keeps; 0 declares the label set so that it starts at 0."""
        self.increments.append(Sample(family.name, labels, float(amount)))

    def condition(self, device: str, state: str, detail: str = "") -> None:
        """Say what state a device is in; the history gets a row when it changes."""
        self.conditions.append(Condition(device, state, detail))

    def event(self, device: str, state: str, detail: str = "", time: float = 0.0) -> None:
        """Say that something happened to a device; the history gets a row each time."""
        self.events.append(Event(device, state, detail, time))

    def send(self, probe: str, body: bytes) -> None:
        """Let another probe know something, with its next run."""
        self.letters.append(Letter(probe, body))


class Probe(ABC):
    """One thing to look at, in a process of its own.

    A subclass lives in `nodevitals/probes/<name>.py`. The agent reads only the class attributes
    and calls `targets`; everything else happens in a worker that may hang or crash.
    """

    name: ClassVar[str]
    families: ClassVar[tuple[Family, ...]]
    Settings: ClassVar[type[ProbeSettings]]
    resident: ClassVar[bool] = False
    """True only where a handle must live on between runs; else each run has a new process. A
    resident lives on while its runs succeed."""
    start_seconds: ClassVar[float] = 0.0
    """What the first run of a new process may take beyond the timeout: drivers start slowly."""
    remembers: ClassVar[bool] = False
    """True where the carry must outlive the agent and the boot: it is kept in the state directory,
    written together with the counts of the same run."""

    def __init__(self, host: Host, settings: Any, target: str) -> None:
        self.host = host
        self.settings = settings
        self.target = target

    @classmethod
    def targets(cls, settings: Any) -> tuple[str, ...]:
        """The targets these settings ask for, each with a worker of its own. Touches nothing."""
        return (cls.name,)

    @classmethod
    def preload(cls) -> None:
        """Import, in the fork server, what runs will need; called once before any fork."""

    def open(self) -> None:
        """Acquire what lives from run to run. May raise ProbeError or Absent."""

    @abstractmethod
    def run(self, readings: Readings) -> None:
        """Look once. May raise ProbeError or Absent."""

    def close(self) -> None:
        """Release what `open` acquired."""
