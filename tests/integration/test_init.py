"""`nodevitals init` on simulated nodes: what it finds, what it writes, and what it never replaces.

Only the hardware below our code is simulated; Debian's promtool, amtool and systemd-analyze judge.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from testbed import npus
from testbed.faultyfs import FaultyFileSystem
from testbed.initialized import Initialized
from testbed.node import environment, run, wait_until
from testbed.seccomp import systemd_analyze
from testbed.servers import BINARIES, show_debian_files
from testbed.tmpfs import mount_tmpfs, unmount
from testbed.trees import write

SHORT_START = (
    "from nodevitals.probes.nvidia.probe import NvidiaProbe; NvidiaProbe.start_seconds = 3"
)
Done = subprocess.CompletedProcess[str]


def warnings(done: Done) -> list[str]:
    """What is said about the node."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("Warning: ")]
    return [line for line in lines if "install it elsewhere" not in line]


def test_what_a_node_has_is_expected_and_the_agent_sees_its_loss(tmp_path: Path) -> None:
    node = Initialized(tmp_path, 8, mlx5_infiniband=8)
    with FaultyFileSystem(tmp_path, "filer:/data", "data"):
        done = node.init("--cluster", "atlas")
        assert (done.stderr, warnings(done)) == ("", [])
        config = node.config()
        assert config["nvidia"] == {"expected": 8}
        assert config["rdma"]["expected"] == {f"mlx5_{port}/1": "400Gb/s" for port in range(8)}
        assert [one["path"] for one in config["mounts"]["targets"]] == ["/data"]
        assert "ascend" not in config
        text = (node.made / "nodevitals.yaml").read_text()
        today = time.strftime("%Y-%m-%d")
        assert f"    expected: 8 # found on gpu-7, {today}\n" in text
        agent = node.agent()
        with agent:
            wait_until(lambda: agent.get("/readyz").ok)

            def healthy() -> bool:
                return all(
                    agent.value("nodevitals_probe_success", probe=probe) == 1
                    for probe in ("nvidia", "rdma", "network", "mounts", "node")
                )

            wait_until(healthy)
            assert agent.value("nodevitals_accelerators_expected", vendor="nvidia") == 8
            assert agent.value("nodevitals_accelerators_present", vendor="nvidia") == 8
            node.machine.lose(3)
            present = "nodevitals_accelerators_present"
            wait_until(lambda: agent.value(present, vendor="nvidia") == 7, 40)
            assert agent.value("nodevitals_accelerators_expected", vendor="nvidia") == 8


def test_a_degraded_node_is_reported_and_its_counts_are_not_taken(tmp_path: Path) -> None:
    node = Initialized(tmp_path, 8, mlx5_infiniband=4)
    node.machine.vanish(5)
    node.nics.down("mlx5_1/1")
    node.nics.up("mlx5_2/1", "100 Gb/sec (4X EDR)")
    done = node.init()
    assert done.returncode == 1
    said = "\n".join(warnings(done))
    assert "8 GPUs on the PCI bus, 7 can be read" in said
    assert "RDMA port mlx5_1/1 is down" in said
    assert "mlx5_2/1 is at 100Gb/s, others of its kind at 400Gb/s" in said
    config = node.config()
    assert config["nvidia"] == {"expected": 8}
    assert config["rdma"]["expected"] == {"mlx5_0/1": "400Gb/s", "mlx5_3/1": "400Gb/s"}
    assert "      #mlx5_1/1: down\n" in (node.made / "nodevitals.yaml").read_text()
    assert "2 at 400Gb/s, 1 at 100Gb/s, 1 down" in done.stdout


def test_a_driver_that_hangs_costs_its_own_values_only(tmp_path: Path) -> None:
    node = Initialized(tmp_path, 8, mlx5_infiniband=2)
    node.machine.hang()
    # Its worker is killed after 13 s instead of 40 s.
    code = f"{SHORT_START}; from nodevitals.commands.cli import main; sys.exit(main())"
    argv = [sys.executable, "-c", f"import sys; {code}", "init", str(node.made), *node.flags]
    done = subprocess.run(
        argv, env=environment(**node.variables), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "8 GPUs on the PCI bus, none can be read (timeout: " in "\n".join(warnings(done))
    config = node.config()
    assert config["nvidia"] == {"expected": 8}
    assert len(config["rdma"]["expected"]) == 2


def test_npus_are_counted_by_chip(tmp_path: Path) -> None:
    """The tool is found on PATH, as on a node. Its lock is root's, in /run."""
    node = Initialized(tmp_path, 0)
    machine = npus.Machine(tmp_path).start()
    node.flags = (*node.flags, *machine.flags)
    node.variables["PATH"] = (
        f"{machine.settings['npu_smi'].rpartition('/')[0]}:{os.environ['PATH']}"
    )
    done = node.init()
    assert warnings(done) == []
    assert node.config()["ascend"] == {"expected": 8}
    drop_in = (node.made / "nodevitals.service.d/groups.conf").read_text()
    assert drop_in.endswith("[Service]\nSupplementaryGroups=HwHiAiUser\n")


def test_a_mount_that_hangs_is_found_without_a_touch(tmp_path: Path) -> None:
    node = Initialized(tmp_path, 0)
    with FaultyFileSystem(tmp_path, "filer:/data", "data") as mount:
        mount.fault("hang")
        node.init()
    assert node.config()["mounts"]["targets"][0]["source"] == "filer:/data"


def test_values_that_are_wrong_are_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    write(tmp_path, {"rules-values.yaml": "thresholds: {cpu_shar: 0.5}\n"})
    done = run("init", str(tmp_path), "--expected", "none")
    assert done.returncode not in (0, -signal.SIGKILL)
    assert done.stderr.startswith(f"{tmp_path}/rules-values.yaml:1:14: thresholds.cpu_shar: no ")
    assert [path.name for path in tmp_path.iterdir()] == ["rules-values.yaml"]


def test_expected_none_reads_no_hardware(tmp_path: Path) -> None:
    node = Initialized(tmp_path, 8)
    node.machine.hang()
    done = node.init("--expected", "none")
    assert node.config() == {}
    assert "HARDWARE" not in done.stdout
    assert "Next steps" in done.stdout


def test_debians_tools_accept_what_is_written(tmp_path: Path) -> None:
    node = Initialized(tmp_path, 2)
    node.init("--node", "gpu-1", "--node", "10.0.0.2:9900", "--node", "[fe80::1]:9855")
    show_debian_files()
    routes = f"{node.made}/alertmanager/alertmanager"
    for tool, *arguments in (
        ("promtool", "check", "config", f"{node.made}/prometheus/prometheus.yml"),
        ("amtool", "check-config", f"{routes}.yml", f"{routes}-full.yml"),
    ):
        argv = [str(BINARIES / tool), *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout
        assert "WARN" not in done.stdout + done.stderr
    targets = yaml.safe_load((node.made / "prometheus/targets/nodevitals.yml").read_text())
    assert targets == [{"targets": ["gpu-1:9855", "10.0.0.2:9900", "[fe80::1]:9855"]}]
    unit = node.made / "nodevitals.service"
    done = systemd_analyze("verify", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_running_it_twice_changes_nothing(tmp_path: Path) -> None:
    node = Initialized(tmp_path, 2)
    first = node.init("--webhook", "http://127.0.0.1:5001/")
    before = content(node.made)
    again = node.init("--webhook", "http://127.0.0.1:5001/")
    assert content(node.made) == before
    assert " written" in first.stdout
    assert " written" not in again.stdout
    assert "kept, the same" in again.stdout
    assert "Differs" not in again.stdout
    routes = node.made / "alertmanager/alertmanager.yml"
    routes.write_text("# mine\n")
    other = node.init("--cluster", "other")
    assert other.returncode == 1
    assert f"Differs: {routes}" in other.stdout
    assert f"Differs: {node.made}/prometheus/prometheus.yml" in other.stdout
    assert routes.read_text() == "# mine\n"


def test_rules_follow_the_values_of_the_site(tmp_path: Path) -> None:
    node = Initialized(tmp_path, 1)
    write(node.made, {"rules-values.yaml": "alerts: {MountHung: {wait: 77s}}\n"})
    node.init("--expected", "none")
    assert "for: 77s" in (node.made / "prometheus/rules/mount.yaml").read_text()
    values, rules = str(node.made / "rules-values.yaml"), str(node.made / "prometheus/rules")
    Path(values).write_text("alerts: {MountHung: {wait: 78s}}\n")
    done = run("rules", "render", "--values", values, "--output", rules)
    assert done.returncode == 0, done.stderr
    assert "for: 78s" in (node.made / "prometheus/rules/mount.yaml").read_text()
    assert "Differs" not in node.init("--expected", "none").stdout


def test_links_in_the_folder_are_not_followed(tmp_path: Path) -> None:
    node = Initialized(tmp_path, 1)
    outside = write(tmp_path / "outside", {"file": "not ours\n"})
    node.made.mkdir()
    (node.made / "nodevitals.yaml").symlink_to(outside / "file")
    (node.made / "nodevitals.service").symlink_to(outside / "new")
    done = node.init("--expected", "none")
    assert done.returncode == 1
    assert f"Differs: {node.made}/nodevitals.service" in done.stdout
    (node.made / "prometheus").rename(tmp_path / "moved")
    (node.made / "prometheus").symlink_to(outside)
    done = node.init("--expected", "none")
    assert done.returncode != 0
    assert "prometheus/prometheus.yml: Not a directory" in done.stderr
    assert content(outside) == {str(outside / "file"): b"not ours\n"}


@pytest.mark.parametrize("what", ["file", "sealed", "no_parent", "fifo"])
def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path, what: str) -> None:
    target = tmp_path / "made"
    if what == "file":
        target.write_text("")
    elif what == "sealed":
        target.mkdir()
        mount_tmpfs(target)
        subprocess.run(["mount", "-o", "remount,ro", target], check=True)
    elif what == "fifo":
        os.mkfifo(target)
    else:
        target = Path("/proc/none/made")
    try:
        done = run("init", str(target), *(["--expected", "none"] * (what == "sealed")))
    finally:
        unmount(target)
    assert done.returncode not in (0, -signal.SIGKILL)
    assert done.stderr.startswith(f"{target}")
    assert done.stderr.count("\n") == 1
    assert "Reading the hardware" not in done.stdout
    assert "Next steps" not in done.stdout


def test_a_full_disk_leaves_only_whole_files(tmp_path: Path) -> None:
    whole, small = tmp_path / "whole", tmp_path / "small"
    run("init", str(whole), "--expected", "none")
    wanted = {name.removeprefix(str(whole)): text for name, text in content(whole).items()}
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "scratch-init", small], check=True)
    try:
        done = run("init", str(small), "--expected", "none")
        assert "No space left on device" in done.stderr
        assert "run it again" in done.stderr
        found = {name.removeprefix(str(small)): text for name, text in content(small).items()}
        assert found
        assert found.items() < wanted.items()
        subprocess.run(["mount", "-o", "remount,size=16m", small], check=True)
        run("init", str(small), "--expected", "none")
        assert {name.removeprefix(str(small)) for name in content(small)} == set(wanted)
    finally:
        unmount(small)


def test_a_killed_run_leaves_only_whole_files(tmp_path: Path) -> None:
    """Killed before a file is on disk, before it has its name, and with both names."""
    whole, made = tmp_path / "whole", tmp_path / "made"
    run("init", str(whole), "--expected", "none")
    wanted = {name.removeprefix(str(whole)): text for name, text in content(whole).items()}
    script = (
        "import os, sys; from nodevitals.commands.init import writer;"
        "calls = iter(range({kill})); real = os.{call};"
        "os.{call} = lambda *a, **k: (next(calls, None) is None and os.kill(os.getpid(), 9),"
        " real(*a, **k))[1];"
        "from nodevitals.commands.cli import main; main(['init', {made!r}, '--expected', 'none'])"
    )
    for call, kill in (("fsync", 0), ("link", 20), ("unlink", 3)):
        code = script.format(kill=kill, call=call, made=str(made))
        argv = [sys.executable, "-c", code]
        done = subprocess.run(argv, env=environment(), capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        found = {name.removeprefix(str(made)): text for name, text in content(made).items()}
        assert found.pop("/.nodevitals-init.new", None) is not None
        assert found.items() <= wanted.items()
        run("init", str(made), "--expected", "none")
        found = {name.removeprefix(str(made)): text for name, text in content(made).items()}
        assert found == wanted
        shutil.rmtree(made)


def test_two_at_once_make_one_whole_folder(tmp_path: Path) -> None:
    made = tmp_path / "made"
    argv = [sys.executable, "-m", "nodevitals", "init", str(made), "--expected", "none"]
    both = [
        subprocess.Popen(
            [*argv, "--cluster", name],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    errors = [one.communicate(timeout=300)[1] for one in both]
    assert all(not text or "another `nodevitals init`" in text for text in errors), errors
    config = yaml.safe_load((made / "prometheus/prometheus.yml").read_text())
    assert config["global"]["external_labels"]["cluster"] in ("a", "b")
    assert (made / "grafana/provisioning/datasources/nodevitals.yaml").exists()
    assert not (made / ".nodevitals-init.new").exists()


def test_the_files_are_read_as_utf8_in_any_locale(tmp_path: Path) -> None:
    """A node of a Chinese site may have zh_CN.GB18030."""
    folder, locale = tmp_path / "site", {"LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "nodevitals", "init", str(folder), "--expected=none"],
        env={**environment(), **locale, "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.stderr == b""
    assert (folder / "grafana/dashboards/zh").is_dir()


def test_a_url_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    done = run("init", str(tmp_path / "site"), "--expected=none", "--webhook=http://x/\udcff")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("--webhook http://x/")
    assert done.stderr.count("\n") == 1
