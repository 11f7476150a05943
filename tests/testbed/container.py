"""Runs a command in a root file system as a container runtime does for a pod, without one.

`Container(root, security, mounts)` makes the command line; run as a program, this module is the
runtime: mounts (an overlay of the image, /proc, /sys, /dev, volumes), pivot_root, then user,
groups, capabilities, no_new_privs and the runtime's default seccomp profile. The securityContext
has the fields of a Kubernetes manifest; one that is not implemented here is an error. Not
simulated: the devices cgroup, by which an unprivileged container opens no device of a hostPath.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from testbed import seccomp
from testbed.confinement import CAPABILITIES, LIBC, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS

MNT_DETACH = 2
FIELDS = {
    *("runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "capabilities"),
    *("allowPrivilegeEscalation", "seccompProfile", "supplementalGroups"),
}
DEVICES = ("null", "zero", "full", "random", "urandom")
# https://github.com/containerd/containerd/blob/main/pkg/oci/spec.go, maskedPaths and readonlyPaths
MASKED = ("acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi")
READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
# Of the calls that the profile leaves out for a container without further capabilities:
# https://github.com/moby/moby/blob/master/profiles/seccomp/default_linux.go
DENIED = {
    None: "_sysctl acct add_key bpf chroot clock_settime create_module delete_module fanotify_init "
    "finit_module fsconfig fsmount fsopen fspick get_kernel_syms init_module io_uring_enter "
    "io_uring_register io_uring_setup ioperm iopl kexec_file_load kexec_load keyctl "
    "lookup_dcookie mount mount_setattr move_mount nfsservctl open_tree perf_event_open "
    "pivot_root quotactl quotactl_fd reboot request_key setdomainname sethostname setns "
    "settimeofday swapoff swapon sysfs umount umount2 unshare uselib userfaultfd ustat "
    "vhangup vm86 vm86old",
    "DAC_READ_SEARCH": "open_by_handle_at",
    "SYS_PTRACE": "kcmp pidfd_getfd process_madvise",
    "SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "SYSLOG": "syslog",
}
Mount = Mapping[str, Any]


def granted(security: Mapping[str, Any]) -> set[str]:
    """The capabilities of a securityContext that drops all and adds some."""
    capabilities = security.get("capabilities", {})
    assert capabilities.get("drop") == ["ALL"], capabilities
    added = set(capabilities.get("add", ()))
    assert added <= set(CAPABILITIES), added
    return added


class Container:
    """A command line for commands in a container."""

    def __init__(
        self,
        root: Path,
        security: Mapping[str, Any],
        mounts: Sequence[Mount] = (),
        host_processes: bool = False,
        **environment: str,
    ) -> None:
        """`mounts`: `source`, `target`, and `readOnly`, as of hostPath volumes."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        specification = {
            "root": str(root),
            "security": security,
            "mounts": mounts,
            "host_processes": host_processes,
            "environment": {"PATH": path, "LANG": "C.UTF-8", **environment},
        }
        pids = [] if host_processes else ["--pid", "--fork", "--kill-child"]
        self.command = [
            *("unshare", "--mount", "--propagation", "slave", *pids),
            *(sys.executable, __file__, json.dumps(specification), "--"),
        ]

    def run(self, *command: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*self.command, *command], capture_output=True, text=True, check=False, timeout=seconds
        )


def mount(*arguments: str) -> None:
    """Run `mount`."""
    subprocess.run(["mount", *arguments], check=True)


def bind(source: str, target: str, read_only: bool = False, recursive: bool = True) -> None:
    """Mount a file or folder on a path, which is made; read-only holds for the first mount only,
    as Kubernetes' `readOnly` does.
    """
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    elif not Path(target).exists():
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    mount("--rbind" if recursive else "--bind", source, target)
    if read_only:
        mount("-o", "remount,bind,ro", target)


def make_root(specification: Mapping[str, Any], base: Path) -> Path:
    """Mount the container's file systems below `base`; return its root."""
    mount("-t", "tmpfs", "overlay", str(base))
    for name in ("upper", "work", "root"):
        (base / name).mkdir(mode=0o755)
    root = base / "root"
    layers = f"lowerdir={specification['root']},upperdir={base}/upper,workdir={base}/work"
    mount("-t", "overlay", "overlay", "-o", layers, str(root))
    make_kernel_mounts(root, specification["host_processes"])
    for one in specification["mounts"]:
        bind(one["source"], f"{root}{one['target']}", one.get("readOnly", False))
    if specification["security"].get("readOnlyRootFilesystem"):
        mount("-o", "remount,bind,ro", str(root))
    return root


def make_kernel_mounts(root: Path, host_processes: bool) -> None:
    """Mount /proc, /sys and /dev, with what runtimes hide of them."""
    if host_processes:
        bind("/proc", f"{root}/proc")
    else:
        mount("-t", "proc", "proc", f"{root}/proc")
    bind("/sys", f"{root}/sys", read_only=True, recursive=False)
    mount("-t", "tmpfs", "-o", "mode=755", "dev", f"{root}/dev")
    (root / "dev/shm").mkdir()
    mount("-t", "tmpfs", "shm", f"{root}/dev/shm")
    for name in DEVICES:
        bind(f"/dev/{name}", f"{root}/dev/{name}")
    for name in filter(lambda name: (root / "proc" / name).exists(), READ_ONLY):
        bind(f"{root}/proc/{name}", f"{root}/proc/{name}", read_only=True)
    for name in filter(lambda name: (root / "proc" / name).exists(), MASKED):
        hidden = root / "proc" / name
        mount(
            *(
                ["-t", "tmpfs", "-o", "ro", "hidden"]
                if hidden.is_dir()
                else ["--bind", "/dev/null"]
            ),
            str(hidden),
        )


def default_profile(capabilities: set[str]) -> seccomp.Filter:
    """What the runtime's default profile denies."""
    made = seccomp.Filter()
    for capability, names in DENIED.items():
        if capability not in capabilities:
            for name in names.split():
                made.rule(seccomp.DENY | errno.EPERM, name)
    made.rule(seccomp.DENY | errno.ENOSYS, "clone3")
    for flag in seccomp.NAMESPACES:
        made.rule(seccomp.DENY | errno.EPERM, "clone", (0, seccomp.MASKED_EQUAL, flag, flag))
    return made


def change_root(root: Path) -> None:
    """pivot_root(2), and unmount the old root."""
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "."], check=True)
    assert LIBC.umount2(b".", MNT_DETACH) == 0, os.strerror(ctypes.get_errno())
    os.chdir("/")


def restrict(security: Mapping[str, Any], profile: seccomp.Filter | None) -> None:
    """Become the user, with the capabilities that are left."""
    kept = granted(security)
    for number, name in enumerate(CAPABILITIES):
        if name not in kept:
            LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    user = security["runAsUser"]
    os.setgroups(security.get("supplementalGroups", []))
    group = security.get("runAsGroup", 0)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)  # a user other than root loses all capabilities
    if security.get("allowPrivilegeEscalation") is False:
        LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if profile is not None:
        profile.load()


def main(arguments: Sequence[str]) -> None:
    """Enter the container and execute the command."""
    specification = json.loads(arguments[0])
    security = specification["security"]
    assert set(security) <= FIELDS, f"not implemented: {set(security) - FIELDS}"
    assert not (security.get("runAsNonRoot") and security["runAsUser"] == 0), "runs as root"
    profile = None
    if security.get("seccompProfile"):
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        profile = default_profile(granted(security))
    root = make_root(specification, Path("/mnt"))
    change_root(root)
    restrict(security, profile)
    command = list(arguments[2:])
    os.execvpe(command[0], command, specification["environment"])


if __name__ == "__main__":
    main(sys.argv[1:])
