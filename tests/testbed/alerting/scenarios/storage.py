"""Filers and disks."""

from __future__ import annotations

from testbed.alerting.node import Hardware
from testbed.alerting.outcome import Wanted
from testbed.alerting.scenario import MINUTE, Fleet
from testbed.alerting.scenarios.table import FILER, HOUR, each, rows, scenario

DATA = "/data"


@scenario("a filer fails over in 90 s: mounts of 32 nodes hang", Wanted())
def filer_fails_over(fleet: Fleet) -> None:
    fleet.add(32, rows(mounts=(FILER,)))
    each(fleet.nodes, lambda node: node.mount_hung(DATA, 10 * MINUTE, 10 * MINUTE + 90))


@scenario(
    "a filer is away for 20 min, and tasks hang on 32 nodes",
    Wanted(pages=1, titles=("filer-1",)),
    minutes=60,
)
def filer_away(fleet: Fleet) -> None:
    fleet.add(32, rows(mounts=(FILER,)))
    each(fleet.nodes, lambda node: node.mount_hung(DATA, 10 * MINUTE, 30 * MINUTE))


@scenario("a filer is slow for 6 min, ten times its usual", Wanted(), minutes=110, begin=60)
def filer_slow_6_min(fleet: Fleet) -> None:
    fleet.add(16, rows(mounts=(FILER,)))
    each(fleet.nodes, lambda node: node.mount_slow(DATA, 8, HOUR + 300, HOUR + 660))


@scenario(
    "a filer is slow for 20 min",
    Wanted(tickets=1, ticket_titles=("filer-1",)),
    minutes=110,
    begin=60,
)
def filer_slow_20_min(fleet: Fleet) -> None:
    fleet.add(16, rows(mounts=(FILER,)))
    each(fleet.nodes, lambda node: node.mount_slow(DATA, 8, HOUR + 300, HOUR + 1500))


@scenario(
    "scratch disks of 8 nodes fill while a job stages its data in, and empty when it ends",
    Wanted(),
    minutes=130,
    begin=60,
)
def scratch_fills_and_empties(fleet: Fleet) -> None:
    fleet.add(10, _with_scratch)
    for node in fleet.nodes[:8]:
        (free,) = node.matching("nodevitals_mount_free_bytes", mountpoint="/scratch")
        # Three jobs: filled within 15 min to 3 %, kept for 15, emptied.
        for start in (40 * MINUTE, 75 * MINUTE, 105 * MINUTE):
            free.replace(8e14, start, start + 900, slope=-7.7e14 / 900)
            free.replace(3e13, start + 900, start + 1500)


def _with_scratch(number: int) -> Hardware:
    mounts = (FILER, ("/scratch", "xfs", "/dev/md0"))
    return Hardware(domains={"leaf": f"leaf-{number // 8}", "pool": "train"}, mounts=mounts)


@scenario(
    "a shared file system is nearly full (a page is open), then its filer hangs",
    Wanted(pages=2, titles=("space", "storage")),
    minutes=110,
)
def filer_hangs_while_full(fleet: Fleet) -> None:
    fleet.add(16, rows(mounts=(FILER,)))
    each(fleet.nodes, lambda node: node.mount_free(DATA, 0.03, 10 * MINUTE))
    each(fleet.nodes, lambda node: node.mount_hung(DATA, 60 * MINUTE))


@scenario(
    "one GPU is lost while a filer is away",
    Wanted(pages=2, titles=("filer-1", "GPU 0 lost", "n020"), tickets=(0, 1)),
)
def gpu_lost_during_filer_incident(fleet: Fleet) -> None:
    fleet.add(24, rows(gpus=1, mounts=(FILER,)))
    fleet.nodes[19].gpu_lost(0, 20 * MINUTE)
    each(fleet.nodes, lambda node: node.mount_hung(DATA, 10 * MINUTE, 38 * MINUTE))


@scenario(
    "the mount of one node hangs",
    Wanted(pages=1, titles=("n003",), tickets=(0, 1)),
)
def one_mount_hangs(fleet: Fleet) -> None:
    fleet.add(8, rows(mounts=(FILER,)))
    fleet.nodes[2].mount_hung(DATA, 10 * MINUTE)


@scenario(
    "a mount of one node has another type than configured",
    Wanted(pages=(0, 1), tickets=(0, 1), at_least_one=True),
)
def mount_of_wrong_type(fleet: Fleet) -> None:
    fleet.add(6, rows(mounts=(FILER,)))
    for one in fleet.nodes[2].matching("nodevitals_mount_as_expected"):
        one.replace(0, 10 * MINUTE, 40 * MINUTE)
