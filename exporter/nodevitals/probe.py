"""The definition of a probe: the only module that probes of the project and of a site import.

A probe declares its families once, beside the code that fills them; a run fills a `Readings`. No
I/O happens here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, Optional, Protocol, Union

import msgspec

from nodevitals.document import Problem
from nodevitals.errors import Absent, ProbeError
from nodevitals.families import Families, Family
from nodevitals.linux.host import Host
from nodevitals.quantities import BytesPerSecond, Seconds
from nodevitals.wire import (
    MAX_DETAIL_CHARACTERS,
    MAX_MESSAGE_BYTES,
    MAX_NOTES,
    Condition,
    Event,
    Message,
    Note,
    Sample,
    encode,
    one_line,
)

__all__ = [
    "Absent",
    "BytesPerSecond",
    "Families",
    "Family",
    "Host",
    "LabelError",
    "Probe",
    "ProbeError",
    "ProbeSettings",
    "Problem",
    "Readings",
    "Seconds",
    "TargetTiming",
    "Timing",
]

Default = Literal["auto", "on", "off"]


STALE_INTERVALS = 3


class TargetTiming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that change the timing of a probe, or of one of its targets."""

    interval: Optional[Seconds] = None
    """Time between two runs; a target inherits that of its probe, a probe that of `defaults`."""
    timeout: Optional[Seconds] = None
    """Time that a run may take, at most the interval; inherited as the interval is."""
    stale_after: Optional[Seconds] = None
    """Age at which samples disappear; three intervals by default."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The complete timing of a target, in seconds, with defaults and limits applied."""

    interval_seconds: float = 15.0
    timeout_seconds: float = 10.0
    stale_after_seconds: float = 45.0

    def changed_by(self, own: TargetTiming) -> Timing:
        """The timing where `own` has keys of its own. An inherited timeout is capped at the
        interval; with another interval, `stale_after` is three of it.
        """
        interval = own.interval or self.interval_seconds
        same = interval == self.interval_seconds
        inherited = self.stale_after_seconds if same else STALE_INTERVALS * interval
        return Timing(
            interval_seconds=interval,
            timeout_seconds=min(own.timeout or self.timeout_seconds, interval),
            stale_after_seconds=own.stale_after or inherited,
        )


_DEFAULT_TIMING = Timing()


class ProbeSettings(TargetTiming, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that every probe has. What is left out comes from `defaults`."""

    enabled: Union[Literal["auto"], bool] = "auto"
    """`auto`: where the hardware or its tool is there; `true`: its absence is a failure."""

    @property
    def required(self) -> bool:
        """Whether the absence of the hardware is a failure."""
        return self.enabled is True

    def problems(self) -> Iterator[Problem]:
        """Values that do not fit each other, with paths below this probe."""
        return iter(())


class LabelError(ValueError):
    """A sample that does not fit its family: a mistake in the probe."""


class Watch(Protocol):
    """Exposes the readings of an unfinished run."""

    def start(self, readings: Readings) -> None:
        """Expose them when the run's time is nearly over. Further calls do nothing."""

    def report(self, readings: Readings) -> None:
        """Expose them now."""


class Readings:
    """The results that a run fills in. They are exposed also where the run raises ProbeError."""

    def __init__(
        self,
        received: tuple[Any, ...] = (),
        forgotten: Iterable[str] = (),
        families: Iterable[Family] | None = None,
        interrupted: Iterable[str] = (),
    ) -> None:
        self.samples: list[Sample] = []
        self.increments: list[Sample] = []
        self.conditions: list[Condition] = []
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self.notes: list[Note] = []
        self.received = received
        """Messages of other probes, each of the type `Probe.Message`."""
        self.forgotten = frozenset(forgotten)
        """Devices that `nodevitals history forget` has retired and that were not seen since."""
        self.interrupted = frozenset(interrupted)
        """The devices of `at` that runs were ended at, since the last run that returned: to be
        left out or read last, so that the others are read before one hangs again."""
        self.device = ""
        self.call = ""
        self.watch: Watch | None = None
        """Set by the engine."""
        self._families = None if families is None else frozenset(family.name for family in families)
        self._seen: set[tuple[str, tuple[str, ...]]] = set()

    def add(self, family: Family, value: float | None, *labels: str) -> None:
        """Record a value; None means unknown, and an unknown value is not exposed.

        Raises LabelError where the labels do not fit the family, or have a value already.
        """
        if value is not None:
            self._check(family, labels)
            if (family.name, labels) in self._seen:
                raise LabelError(f"{family.name}{labels} is added twice")
            self._seen.add((family.name, labels))
            self.samples.append(Sample(family.name, labels, float(value)))

    def at(self, device: str, call: str) -> None:
        """Name the device that is read now and the call into its driver, as in `at("GPU 3",
        "nvmlDeviceGetTemperature")`. A run that is ended there exposes what was added before; its
        error names both.
        """
        self.device, self.call = device, call
        if self.watch is not None:
            self.watch.start(self)

    def report(self) -> None:
        """Expose now what was added so far: the next call may hang."""
        if self.watch is not None:
            self.watch.report(self)

    def mark(self) -> int:
        """The current position among the samples, for `discard_since`."""
        return len(self.samples)

    def discard_since(self, mark: int, until: int | None = None) -> None:
        """Discard the samples added since a mark, or between two marks: those of a device that was
        lost while it was read.
        """
        discarded = self.samples[mark:until]
        self._seen -= {(sample.family, sample.labels) for sample in discarded}
        del self.samples[mark:until]

    def increment(self, family: Family, amount: float, *labels: str) -> None:
        """Add to a counter that the agent keeps; 0 makes it start at 0 as soon as its label set is
        known. Raises LabelError where the labels do not fit the family.
        """
        self._check(family, labels)
        self.increments.append(Sample(family.name, labels, float(amount)))

    def _check(self, family: Family, labels: tuple[str, ...]) -> None:
        if self._families is not None and family.name not in self._families:
            raise LabelError(f"{family.name} is not among the probe's families")
        if not family.accepts(labels):
            names = ", ".join(family.labels)
            raise LabelError(f"{family.name} has the labels ({names}); {labels} does not fit")

    def condition(self, device: str, state: str, detail: str = "") -> None:
        """Record the state of a device; the history gets a row when it changes."""
        self.conditions.append(Condition(device, state, detail[:MAX_DETAIL_CHARACTERS]))

    def event(self, device: str, state: str, detail: str = "", time: float = 0.0) -> None:
        """Record something that happened to a device; the history gets a row each time."""
        self.events.append(Event(device, state, detail[:MAX_DETAIL_CHARACTERS], time))

    def note(self, text: str, warning: bool = False) -> None:
        """Write a line into the agent's log; a run has a limited number of them."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(Note(one_line(text), warning))

    def send(self, probe: str, message: msgspec.Struct) -> None:
        """Send a message to another probe; it receives it with its next run.

        Raises ValueError where it is too large.
        """
        body = encode(message)
        if len(body) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {len(body)} bytes, over {MAX_MESSAGE_BYTES}")
        self.messages.append(Message(probe, body))


class NoState(msgspec.Struct):
    """The state of a probe that keeps none."""


class Probe(ABC):
    """One kind of object to monitor. Each of its targets has a process of its own.

    A subclass lives in `nodevitals/probes/<name>.py` or `nodevitals/probes/<name>/probe.py`. The
    agent reads only the class attributes and calls `targets`; everything else happens in a worker
    that may hang or crash.
    """

    name: ClassVar[str]
    families: ClassVar[Iterable[Family]]
    default: ClassVar[Default] = "auto"
    """What `enabled` is where the configuration does not mention it."""
    Settings: ClassVar[type[ProbeSettings]] = ProbeSettings
    TargetSettings: ClassVar[Optional[type[msgspec.Struct]]] = None
    """The type of one target's settings; None where it is Settings."""
    State: ClassVar[Any] = NoState
    """What the engine keeps from run to run, all fields with defaults: a run reads and changes
    `self.state`. A state in another shape, left by another version, becomes a new one."""
    Message: ClassVar[Any] = None
    """The type of the messages that this probe receives."""
    persistent: ClassVar[bool] = False
    """Whether the state outlives the agent and the boot: it is kept in the state directory,
    written together with the counts of the same run."""
    resident: ClassVar[bool] = False
    """True only where a handle must live on between runs. A resident lives on while its runs
    succeed."""
    shared: ClassVar[bool] = False
    """Whether a process may run other targets after a run of this probe that succeeded: True where
    it starts no program and leaves nothing behind. A fork takes longer than most runs. A resident
    has a process of its own."""
    prompt: ClassVar[bool] = False
    """Whether a message that differs from its sender's last one makes it run at once, and what it
    reports is exposed within a second."""
    unusable: ClassVar[str] = ""
    """Set by the registry: why this probe cannot be used."""
    chinese: ClassVar[str] = ""
    """What it looks at, for README.zh-CN.md; the docstring of the class is the English text."""
    remedies: ClassVar[Mapping[str, str]] = {}
    """What `nodevitals doctor` advises, by the reason of a ProbeError; {target} is the target."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The keys of which one must be set for the probe to have a target."""
    start_seconds: ClassVar[float] = 0.0
    """Extra time for the first run of a new process, beyond the timeout: drivers start slowly."""

    def __init__(
        self, host: Host, settings: Any, target: str = "", timing: Timing = _DEFAULT_TIMING
    ) -> None:
        self.host = host
        self.settings = settings
        """This target's own settings."""
        self.target = target
        self.timing = timing
        self.state = self.State()

    @classmethod
    def targets(cls, settings: Any) -> Iterable[tuple[str, msgspec.Struct]]:
        """The targets of these settings: the name and the settings of each. No I/O."""
        return [(cls.name, settings)]

    @classmethod
    def target_timing(cls, own: Any, timing: Timing) -> Timing:
        """The timing of a target with these settings: that of its probe, changed by the target's
        own keys where its settings are a TargetTiming. No I/O.
        """
        # `timing` already has the keys of the probe itself.
        is_of_target = isinstance(own, TargetTiming) and not isinstance(own, ProbeSettings)
        return timing.changed_by(own) if is_of_target else timing

    @classmethod
    def is_shared(cls, target: str) -> bool:
        """Whether a process may run other targets after this one; a probe may allow only some."""
        return cls.shared

    @classmethod
    def preload(cls) -> None:
        """Import what runs will need; called once before any fork. For a site's probe it is called
        in the fork server, not in the agent.
        """

    def open(self) -> None:
        """Acquire handles that are kept between runs. May raise ProbeError or Absent."""

    @abstractmethod
    def run(self, readings: Readings) -> None:
        """Read the target once. May raise ProbeError or Absent."""

    def stays(self) -> bool:
        """Whether this instance is used for another run after a successful one."""
        return self.resident

    def wakes_on(self) -> Optional[int]:
        """A descriptor of a probe that stays open; it is readable when there is something to read.
        Then a run starts at once, but not within two seconds of the last one. None where there is
        no such descriptor.
        """
        return None

    def close(self) -> None:
        """Release what `open` acquired."""
