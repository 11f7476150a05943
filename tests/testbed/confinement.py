"""Runs a command under the restrictions of a systemd unit, without systemd.

`python confinement.py UNIT [DROP_IN.conf …] [KEY=VALUE …] -- COMMAND…`: the lines of a drop-in come
after the unit's; each KEY=VALUE replaces all lines of that key. A restriction that is not
implemented here ends the program: none goes untested. It needs root, and a mount namespace in which
it may mount.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from testbed import seccomp

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
# linux/capability.h, by number.
CAPABILITIES = [
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"),
    *("SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW"),
    *("IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT"),
    *("SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD"),
    *("LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG"),
    *("WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE"),
]
# What does not restrict, or belongs to the cgroup.
NOT_APPLIED = {
    *("ExecStart", "ExecReload", "StateDirectory", "Restart", "RestartSec", "KillMode"),
    *("RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve"),
    *("TimeoutStopSec", "TasksMax", "MemoryMax", "SystemCallErrorNumber", "PrivateMounts"),
}
Service = dict[str, list[str]]


def parse_service(text: str) -> Service:
    """The values of each key of a unit's section [Service]."""
    found: Service = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line.strip() and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def capabilities(service: Service) -> set[str]:
    """The capabilities that remain."""
    lines = service.get("CapabilityBoundingSet")
    if lines is None:
        return set(CAPABILITIES)
    return {word.removeprefix("CAP_") for line in lines for word in line.split()}


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [word and word.encode() for word in (source, target, kind)]
    if LIBC.mount(*words, ctypes.c_ulong(flags), data.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _read_only(*paths: str) -> None:
    for path in filter(os.path.exists, paths):
        _mount(path, path, None, MS_BIND | MS_REC)
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        below = {point for point in points if point == path or point.startswith(f"{path}/")}
        for point in below:
            _mount("", point, None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def _hide(*paths: str) -> None:
    """Cover directories with an empty one. What the test itself needs below them stays: the
    interpreter of a developer may be in /root.
    """
    for path in filter(os.path.isdir, paths):
        needed = [one for one in {sys.base_prefix, sys.prefix} if one.startswith(f"{path}/")]
        kept = [(one, os.open(one, os.O_PATH)) for one in needed]
        _mount("hidden", path, "tmpfs", 0, "mode=111")
        for one, descriptor in kept:
            os.makedirs(one)
            _mount(f"/proc/self/fd/{descriptor}", one, None, MS_BIND | MS_REC)


def _protect_system(values: Sequence[str]) -> None:
    assert values == ["full"], values
    _read_only("/usr", "/boot", "/efi", "/etc")


def _protect_home(values: Sequence[str]) -> None:
    if values == ["yes"]:
        _hide("/home", "/root", "/run/user")


def _limit(which: int) -> Callable[[Sequence[str]], None]:
    def apply(values: Sequence[str]) -> None:
        text = values[-1]
        limit = resource.RLIM_INFINITY if text == "infinity" else int(text)
        with suppress(ValueError):  # a container's root may not raise its limits
            resource.setrlimit(which, (limit, limit))

    return apply


def _environment(values: Sequence[str]) -> None:
    for value in values:
        name, _, text = value.strip('"').partition("=")
        os.environ[name] = text


def _umask(values: Sequence[str]) -> None:
    os.umask(int(values[-1], 8))


def _oom_score(values: Sequence[str]) -> None:
    with suppress(PermissionError):  # as above
        Path("/proc/self/oom_score_adj").write_text(values[-1])


FILES: dict[str, Callable[[Sequence[str]], None]] = {
    "ProtectSystem": _protect_system,
    "ProtectHome": _protect_home,
    "ProtectKernelTunables": lambda _: _read_only("/proc/sys", "/sys"),
    "ProtectControlGroups": lambda _: _read_only("/sys/fs/cgroup"),
    "ProtectKernelModules": lambda _: _hide("/usr/lib/modules"),
    "InaccessiblePaths": lambda values: _hide(*" ".join(values).replace("-/", "/").split()),
}
PROCESS: dict[str, Callable[[Sequence[str]], None]] = {
    "LimitNOFILE": _limit(resource.RLIMIT_NOFILE),
    "LimitMEMLOCK": _limit(resource.RLIMIT_MEMLOCK),
    "UMask": _umask,
    "Environment": _environment,
    "OOMScoreAdjust": _oom_score,
    "SupplementaryGroups": lambda values: os.setgroups([int(one) for one in values[0].split()]),
}
CALLS: dict[str, Callable[[Sequence[str]], seccomp.Filter]] = {
    "RestrictSUIDSGID": lambda _: seccomp.no_setuid_files(),
    "RestrictNamespaces": lambda _: seccomp.no_namespaces(),
    "RestrictRealtime": lambda _: seccomp.no_realtime(),
    "LockPersonality": lambda _: seccomp.no_personality(),
    "RestrictAddressFamilies": lambda values: seccomp.families(" ".join(values).split()),
    "SystemCallFilter": lambda values: seccomp.calls(values, errno.EPERM),
}
# libseccomp permits the native ABI alone; the others are applied in `confine`.
OTHERS = {"SystemCallArchitectures", "CapabilityBoundingSet", "NoNewPrivileges"}


def confine(service: Service) -> None:
    """Apply the restrictions to this process, as systemd does before it executes the program."""
    unknown = set(service) - {*NOT_APPLIED, *FILES, *PROCESS, *CALLS, *OTHERS}
    assert not unknown, f"not implemented: {unknown}"
    filters = [make(service[key]) for key, make in CALLS.items() if service.get(key)]
    assert LIBC.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    _mount("", "/", None, MS_SLAVE | MS_REC)
    for table in (FILES, PROCESS):
        for key, apply in table.items():
            if service.get(key):
                apply(service[key])
    kept = capabilities(service)
    assert kept <= set(CAPABILITIES), kept
    for number, name in enumerate(CAPABILITIES):
        if name not in kept:
            LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # an unknown one: an older kernel
    if service.get("NoNewPrivileges") == ["yes"]:
        LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for one in filters:  # the last one denies loading further ones
        one.load()


def main(arguments: Sequence[str]) -> None:
    """Confine this process and execute the command."""
    end = arguments.index("--")
    service = parse_service(Path(arguments[0]).read_text())
    for change in arguments[1:end]:
        if change.endswith(".conf"):
            for name, values in parse_service(Path(change).read_text()).items():
                service.setdefault(name, []).extend(values)
            continue
        key, _, value = change.partition("=")
        service[key] = [value] if value else []
    confine(service)
    command = list(arguments[end + 1 :])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
