"""The mounts that the chart renders, made as a runtime makes them: the agent sees what the node
mounts and unmounts afterwards, and cannot write where the chart says so.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.charts import container, of_kind, pod, rendered
from testbed.node import ROOT, Node, wait_until

[DAEMONSET] = of_kind(rendered(ROOT / "tests/data/chart/default.yaml"), "DaemonSet")
PROPAGATION = {None: "rprivate", "HostToContainer": "rslave", "Bidirectional": "rshared"}


@pytest.fixture
def machine() -> Iterator[list[str]]:
    """A command prefix that executes in the mount namespace of a node, whose / is shared, as that
    of systemd is.
    """
    script = "mount --make-rshared / && echo ready && exec sleep 120"
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield ["nsenter", f"--target={process.pid}", "--mount", "--"]
        finally:
            process.kill()


def runtime(folder: Path) -> list[str]:
    """A command prefix that makes the hostPath mounts of /host, below `folder`, as runc does:
    recursive, `readOnly` only for the first mount.
    """
    sources = {
        v["name"]: v["hostPath"]["path"] for v in pod(DAEMONSET)["volumes"] if "hostPath" in v
    }
    lines = []
    for mount in container(DAEMONSET)["volumeMounts"]:
        if mount["name"] in sources and mount["mountPath"].startswith("/host"):
            source, target = sources[mount["name"]], f"{folder}{mount['mountPath']}"
            lines += [f"mount --rbind {source} {shlex.quote(target)}"]
            lines += [f"mount --make-{PROPAGATION[mount.get('mountPropagation')]} {target}"]
            lines += [f"mount -o remount,bind,ro {target}"] if mount["readOnly"] else []
    script = "\n".join(["set -e", *lines, 'exec "$@"'])
    return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, "sh"]


def start(folder: Path, machine: list[str], data: Path) -> Node:
    """The agent of the DaemonSet, which watches a directory of the node."""
    (folder / "host").mkdir()
    data.mkdir()
    config = {
        "defaults": {"interval": "200ms", "timeout": "200ms"},
        "probes": {"mounts": {"targets": [{"path": str(data), "access": "write"}]}},
    }
    paths = [flag for flag in container(DAEMONSET)["args"] if flag.startswith("--path.")]
    assert len(paths) == 3
    node = Node(folder, config, *(flag.replace("=/host", f"={folder}/host") for flag in paths))
    node.wrapper = [*machine, *runtime(folder)]
    return node


def test_mounts_of_the_node_come_and_go(tmp_path: Path, machine: list[str]) -> None:
    data = tmp_path / "data"
    with start(tmp_path, machine, data) as node:

        def sample(family: str = "nodevitals_mount_present") -> float | None:
            return node.value(family)

        wait_until(lambda: sample() == 0, what="not mounted at first")
        subprocess.run([*machine, "mount", "-t", "tmpfs", "data", str(data)], check=True)
        wait_until(lambda: sample() == 1, what="the mount is not seen")
        wait_until(lambda: sample("nodevitals_mount_content_intact") == 1, what="written and read")
        subprocess.run([*machine, "umount", str(data)], check=True)
        wait_until(lambda: sample() == 0, what="the end of the mount is not seen")


def test_what_is_read_only_and_what_is_not(tmp_path: Path, machine: list[str]) -> None:
    """A file system mounted below a path keeps its own flags: the chart's README says so."""
    (tmp_path / "host").mkdir()
    (tmp_path / "below").mkdir()
    subprocess.run([*machine, "mount", "-t", "tmpfs", "below", str(tmp_path / "below")], check=True)
    host = tmp_path / "host"
    for path, can_write in (
        (host / "var/file-of-the-chart-test", False),
        (host / "proc/sys/vm/swappiness", False),
        (Path(f"{host}{tmp_path}/below/file"), True),
    ):
        command = [*machine, *runtime(tmp_path), "sh", "-c", 'cat "$1" 2>&- || : ; : >>"$1"', "sh"]
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is can_write, (path, done.stderr)
        assert ("Read-only file system" in done.stderr) is not can_write
