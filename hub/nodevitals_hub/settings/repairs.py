"""Settings of repairs: what is started for a fault on a node out of service (repairs.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from nodevitals.document import Problem
from nodevitals.document.local import Local
from nodevitals.quantities import Seconds

Action = Literal["investigate", "restart_app", "reset_device", "reboot_node", "replace"]
"""Values of the label `action` of nodevitals:fault_confirmed that name a repair."""
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z]([a-z0-9-]{0,28}[a-z0-9])?\Z")]
"""A part of the name of an object at the API server."""


class RepairSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is started once per isolation of a node: an object of Kubernetes, or a command. Within
    its texts and words `{node}`, `{device_id}`, `{device_ids}`, `{fault}`, `{action}`, `{reason}`,
    `{pool}`, `{cluster}`, `{isolation}` and `{repair}` are replaced.
    """

    name: Name
    """Its name, which does not change. Example: `reset-gpu`"""
    action: Action | None = None
    """For faults with this action. Example: `reset_device`"""
    faults: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    """For these faults only; one of `action` and `faults` is needed. Example: `[nvidia_xid]`"""
    manifest_file: str | None = None
    """File with one object, as YAML or JSON. Without `metadata.name` it has the repair's id.
    Example: `/etc/nodevitals-repairs/reset-gpu.yaml`"""
    resource: str = ""
    """Its resource at the API server; by default its kind in small letters and an s.
    Example: `networkpolicies`"""
    remove: bool = False
    """Delete the object when it has succeeded, as operators with a taint or a lock expect."""
    command: Annotated[tuple[str, ...], msgspec.Meta(max_length=64), Local("command")] = ()
    """Command instead of an object, as a list of words, never through a shell: such as
    `[/usr/local/sbin/open-ticket, "{node}", "{reason}"]`."""
    when_empty: bool = True
    """Start it only when no job runs on the node any more."""
    at_most: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Those that may run at a time in the cluster."""
    per_hour: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    """Those that may be started within an hour."""
    timeout: Seconds = 3600.0
    """Time after which one that has not ended is no longer watched; a command is ended."""
    dry_run: bool = True
    """Record what would be started, and start nothing."""


def problems(repairs: Sequence[RepairSettings], path: str, scheduler: str) -> Iterator[Problem]:
    """The problems of the repairs; `path` is the path of the list."""
    for number, repair in enumerate(repairs):
        place = f"{path}[{number}]"
        yield from _problems(repair, place, scheduler)
        for earlier, other in enumerate(repairs[:number]):
            if repair.name == other.name:
                yield Problem(f"{place}.name", f"{repair.name!r} is there twice: rename one")
            elif replace(repair, name=other.name) == other:
                yield Problem(place, f"the same as {path}[{earlier}]: remove one")


def _problems(repair: RepairSettings, place: str, scheduler: str) -> Iterator[Problem]:
    if repair.action is None and not repair.faults:
        yield Problem(place, "for no fault: add `action` or `faults`")
    if len(set(repair.faults)) < len(repair.faults):
        yield Problem(f"{place}.faults", "a fault is there twice: remove one")
    if repair.manifest_file is None and not repair.command:
        yield Problem(place, "starts nothing: add `manifest_file` or `command`")
    if repair.manifest_file is not None and repair.command:
        yield Problem(f"{place}.command", "there is a `manifest_file` as well: remove one")
    for key in ("resource", "remove"):
        if getattr(repair, key) and repair.manifest_file is None:
            yield Problem(f"{place}.{key}", "of no object: remove it, or add `manifest_file`")
    if repair.when_empty and scheduler == "command":
        text = "not known with the scheduler `command`: set `when_empty: false`"
        yield Problem(f"{place}.when_empty", text)
