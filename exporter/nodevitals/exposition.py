"""The latest results as exposition text, rendered before a scrape requests them.

In: samples of one source (a target's readings, its status, its counters), from the supervisor's
thread only. Out: an immutable `Exposition` for the web server's threads. Each result is rendered
once, publishing joins the lines, and a scrape copies the joined, compressed bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Optional

from nodevitals.probe import Family
from nodevitals.wire import Sample

# Level 1 takes less than half the time of level 6 for 1.5 times the bytes:
# tests/bench/compression.py.
_GZIP_LEVEL = 1
_GZIP_WINDOW = 31
# Time after which a variant without requests is again rendered only on demand.
REQUESTED_SECONDS = 300.0
# Bounds the memory that a client can use up by requesting every combination of probes.
MAX_REQUESTED = 8
MAX_BODIES = 2 * MAX_REQUESTED + 2
# More series than a node with eight accelerators and every probe has.
_MAX_SERIES = 4096
_MAX_HEADERS = 1024
_NOT_FINITE = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


class Source(NamedTuple):
    """The origin of lines. `part` separates a target's readings from its status."""

    probe: str
    target: str
    part: str


class Variant(NamedTuple):
    """One form of the body: its format, whether it is gzip, and its probes (None: all)."""

    openmetrics: bool
    compressed: bool
    probes: Optional[frozenset[str]] = None


class InvalidSampleError(Exception):
    """A sample of no declared family, with labels that do not fit, or a duplicate."""


def escape_label(value: str) -> str:
    """A label value as the exposition formats write it."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def format_value(value: float) -> str:
    """A value as both formats write it: integers without a decimal point, +Inf, NaN."""
    text = repr(float(value) + 0.0)  # -0.0 is 0
    return text[:-2] if text.endswith(".0") else _NOT_FINITE.get(text, text)


class _SeriesCache:
    """A cache of the name and labels of each series, as text: a target has the same series in each
    run. Equal label values are stored once. When the cache is full, it is cleared.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._known: dict[Family, dict[tuple[str, ...], str]] = {}
        self._values: dict[str, str] = {}
        self._count = 0

    def get(self, family: Family, labels: tuple[str, ...]) -> str:
        """The text with a space. Raises InvalidSampleError where the labels do not fit."""
        known = self._known.get(family)
        text = None if known is None else known.get(labels)
        return self._add(family, labels) if text is None else text

    def _add(self, family: Family, labels: tuple[str, ...]) -> str:
        if not family.accepts(labels):
            raise InvalidSampleError(f"{family.name} does not take the labels {labels}")
        pairs = [f'{name}="{escape_label(text)}"' for name, text in family.pairs(labels) if text]
        text = f"{family.name}{{{','.join(pairs)}}} " if pairs else f"{family.name} "
        if self._count >= _MAX_SERIES:
            self._clear()
        self._count += 1
        kept = tuple([self._values.setdefault(value, value) for value in labels])
        self._known.setdefault(family, {})[kept] = text
        return text


_series = _SeriesCache()


def render(family: Family, labels: tuple[str, ...], value: float) -> str:
    """One sample as a line. Raises InvalidSampleError where the labels do not fit."""
    return f"{_series.get(family, labels)}{format_value(value)}\n"


def render_samples(families: Mapping[str, Family], samples: Iterable[Sample]) -> dict[str, bytes]:
    """The lines of each family. Raises InvalidSampleError at the first invalid sample."""
    lines: dict[str, dict[tuple[str, ...], str]] = {}
    for sample in samples:
        name, labels = sample.family, sample.labels
        family = families.get(name)
        if family is None:
            raise InvalidSampleError(f"{name} is not declared by this probe")
        owned = lines.setdefault(name, {})
        if labels in owned:
            raise InvalidSampleError(f"{name}{labels} appears twice")
        owned[labels] = render(family, labels, sample.value)
    return {name: "".join(owned.values()).encode() for name, owned in lines.items()}


@lru_cache(maxsize=_MAX_HEADERS)
def header(family: Family, openmetrics: bool = False) -> bytes:
    """A family's HELP and TYPE. Cached: each publication has all of them."""
    help_text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    name = family.name
    if openmetrics and family.kind == "counter":
        name = name.removesuffix("_total")  # OpenMetrics: the family's name has no suffix
    return f"# HELP {name} {help_text}\n# TYPE {name} {family.kind}\n".encode()


class Block:
    """One family's lines at one moment, by probe. Immutable: publishing again shares it."""

    def __init__(self, family: Family, lines: Iterable[tuple[str, bytes]]) -> None:
        self._family = family
        self._lines = tuple(lines)

    def parts(self, openmetrics: bool, probes: frozenset[str] | None) -> list[bytes]:
        """The header and the lines, of some probes or of all; nothing where there are none."""
        lines = [text for probe, text in self._lines if probes is None or probe in probes]
        return [header(self._family, openmetrics), *lines] if lines else []


class Exposition:
    """Everything exposed at one moment, in the variants that were requested."""

    def __init__(self, blocks: tuple[Block, ...]) -> None:
        self._blocks = blocks
        self._bodies: dict[Variant, bytes] = {}  # filled by any thread: all have the same

    def body(self, variant: Variant) -> bytes:
        """The body of one variant, built at most once, unless it was only built for another one."""
        known = self._bodies.get(variant)
        if known is not None:
            return known
        if variant.compressed:
            packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
            plain = variant._replace(compressed=False)
            # The plain body is not kept: most servers request only the compressed one.
            body = packer.compress(self._bodies.get(plain) or self._join(plain)) + packer.flush()
        else:
            body = self._join(variant)
        if len(self._bodies) < MAX_BODIES:
            self._bodies[variant] = body
        return body

    def _join(self, variant: Variant) -> bytes:
        parts = [
            part
            for block in self._blocks
            for part in block.parts(variant.openmetrics, variant.probes)
        ]
        if variant.openmetrics:
            parts.append(b"# EOF\n")
        return b"".join(parts)


class Snapshot:
    """The lines of every source by family. One thread writes; any thread may call `scrape`."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self.families = families
        self._lines: dict[str, dict[Source, bytes]] = {name: {} for name in families}
        self._owned: dict[Source, frozenset[str]] = {}
        self._blocks = {name: Block(family, ()) for name, family in families.items()}
        self._changed: set[str] = set()
        self._requested: dict[Variant, float] = {}
        self._exposition = Exposition(())

    @property
    def changed(self) -> bool:
        """Whether anything differs from what is published."""
        return bool(self._changed)

    def put(self, source: Source, lines: Mapping[str, bytes]) -> None:
        """Replace a source's lines, by family, with these."""
        for name in self._owned.get(source, frozenset()) - lines.keys():
            del self._lines[name][source]
            self._changed.add(name)
        for name, text in lines.items():
            if self._lines[name].get(source) != text:
                self._lines[name][source] = text
                self._changed.add(name)
        self._owned[source] = frozenset(lines)

    def drop(self, source: Source) -> None:
        """Remove a source's lines."""
        self.put(source, {})
        self._owned.pop(source, None)

    def publish(self, now: float) -> None:
        """Make the lines visible to scrapes; build the variants that scrapes have requested."""
        for name in self._changed:
            lines = ((source.probe, text) for source, text in self._lines[name].items())
            self._blocks[name] = Block(self.families[name], lines)
        self._changed.clear()
        self._exposition = exposition = Exposition(tuple(self._blocks.values()))
        for variant, requested in list(self._requested.items()):
            if now - requested < REQUESTED_SECONDS:
                exposition.body(variant)
            else:
                del self._requested[variant]

    def scrape(self, variant: Variant, now: float) -> bytes:
        """The body for a scrape; `publish` then builds this variant in advance."""
        if variant in self._requested or len(self._requested) < MAX_REQUESTED:
            self._requested[variant] = now
        return self._exposition.body(variant)
