"""Two virtual machines with Debian's kernel and soft-RoCE between them, emulated: no KVM is needed.

In: a cache folder, a Debian mirror; root, and Debian's QEMU and mmdebstrap. Out: machines node-1
and node-2 which ssh reaches, with rxe0 on 10.77.0.1 and 10.77.0.2. Emulation is some 30 times
slower than the processor: what the tools do is real, their rates mean nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.debianroot import MIRROR
from testbed.node import wait_until

NAMES = ("node-1", "node-2")
NEEDED = ("qemu-system-x86_64", "qemu-img", "mmdebstrap", "mkfs.ext4", "ssh-keygen")
INSTALL = "apt-get install --no-install-recommends qemu-system-x86 qemu-utils seabios mmdebstrap"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "linux-image-amd64", "initramfs-tools", "kmod"),
    *("iproute2", "procps", "openssh-server", "rdma-core", "ibverbs-providers", "perftest"),
)
BOOT_SECONDS = 900.0
_IDENTITY = """\
#!/bin/sh
node=$(sed -n 's/.*node=\\([12]\\).*/\\1/p' /proc/cmdline)
hostname node-$node
ip link set enp0s3 up; ip address replace 10.0.2.15/24 dev enp0s3
ip link set enp0s4 up; ip address replace 10.77.0.$node/24 dev enp0s4
modprobe rdma_rxe; rdma link add rxe0 type rxe netdev enp0s4
"""
_UNIT = """\
[Unit]
DefaultDependencies=no
After=systemd-udev-settle.service systemd-remount-fs.service
Wants=systemd-udev-settle.service
Before=ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/identity
[Install]
WantedBy=multi-user.target
"""


def missing() -> str:
    """The programs that this machine lacks, with the command that installs them; '' for none."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    return f"{', '.join(lacking)}: {INSTALL}" if lacking else ""


def make_image(folder: Path) -> None:
    """Make the disk, the kernel and the ssh key of both machines, once per folder."""
    if (folder / "root.img").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    words = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    subprocess.run([*words, "bookworm", str(tree), MIRROR], check=True)
    key = folder / "key"
    key.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (tree / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(folder / "key.pub", tree / "root/.ssh/authorized_keys")
    (tree / "etc/fstab").write_text("LABEL=root / ext4 errors=remount-ro 0 1\n")
    hosts = "".join(f"10.77.0.{number} {name}\n" for number, name in enumerate(NAMES, 1))
    (tree / "etc/hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
    identity = tree / "usr/local/sbin/identity"
    identity.write_text(_IDENTITY)
    identity.chmod(0o755)
    (tree / "etc/systemd/system/identity.service").write_text(_UNIT)
    subprocess.run(["chroot", tree, "systemctl", "-q", "enable", "identity"], check=True)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next((tree / "boot").glob(f"{name}-*")), folder / name)
    partial = folder / "partial.img"
    partial.unlink(missing_ok=True)
    subprocess.run(["mkfs.ext4", "-q", "-L", "root", "-d", tree, partial, "3G"], check=True)
    partial.rename(folder / "root.img")
    shutil.rmtree(tree)


class VirtualMachine:
    """One of the machines. Its disk is a layer over the image, and ends with it."""

    def __init__(self, image: Path, folder: Path, number: int, ports: tuple[int, int, int]) -> None:
        """Start it. `ports` on the loopback interface: of ssh, and of both ends of the fabric."""
        self.name, self.ssh_port = f"node-{number}", ports[0]
        here, there = ports[number], ports[3 - number]
        disk = folder / f"{self.name}.qcow2"
        backing = ["-F", "raw", "-b", str(image / "root.img")]
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, disk], check=True)
        fabric = (
            f"dgram,id=fabric,local.type=inet,local.host=127.0.0.1,local.port={here},"
            f"remote.type=inet,remote.host=127.0.0.1,remote.port={there}"
        )
        login = f"user,id=login,restrict=on,hostfwd=tcp:127.0.0.1:{self.ssh_port}-:22"
        command = [
            *("qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi"),
            *("-cpu", "max", "-smp", "1", "-m", "768", "-display", "none", "-nodefaults"),
            *("-serial", f"file:{folder / f'{self.name}.log'}", "-no-user-config"),
            *("-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd.img")),
            *("-append", f"root=LABEL=root ro console=ttyS0 node={number} mitigations=off quiet"),
            *("-netdev", login, "-device", "virtio-net-pci,netdev=login,addr=0x3"),
            *("-netdev", fabric, "-device"),
            f"virtio-net-pci,netdev=fabric,addr=0x4,mac=52:54:00:00:01:0{number}",
            *("-drive", f"if=none,id=root,file={disk}", "-device", "virtio-blk-pci,drive=root"),
            *("-object", "rng-random,id=rng,filename=/dev/urandom", "-device"),
            "virtio-rng-pci,rng=rng",
        ]
        with open(folder / f"{self.name}.qemu", "wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def end(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Machines:
    """Both machines, and the `ssh` that logs in to them as root."""

    def __init__(self, image: Path, folder: Path, ports: tuple[int, int, int, int]) -> None:
        """Start them. `ports`: of ssh of both machines, and of both ends of the fabric."""
        self._machines = [
            VirtualMachine(image, folder, number, (ports[number - 1], *ports[2:]))
            for number in (1, 2)
        ]
        config = "".join(
            f"Host {machine.name}\nHostName 127.0.0.1\nPort {machine.ssh_port}\n"
            for machine in self._machines
        )
        (folder / "config").write_text(
            f"{config}Host *\nUser root\nIdentityFile {image / 'key'}\nLogLevel ERROR\n"
            "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        )
        program = folder / "bin/ssh"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
        program.chmod(0o755)
        self.path = f"{program.parent}:{os.environ['PATH']}"

    def run(self, name: str, command: str, check: bool = True) -> str:
        """The output of a command on a machine."""
        words = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", name, "--", command]
        done = subprocess.run(
            words,
            env={**os.environ, "PATH": self.path},
            text=True,
            capture_output=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{name}: {command}: {done.stderr}{done.stdout}")
        return done.stdout

    def wait(self) -> None:
        """Wait until both have booted, and soft-RoCE is active."""
        for machine in self._machines:

            def is_active(name: str = machine.name) -> bool:
                return "ACTIVE" in self.run(name, "rdma link show", check=False)

            wait_until(is_active, BOOT_SECONDS, f"{machine.name} has booted")

    def end(self) -> None:
        """End both."""
        for machine in self._machines:
            machine.end()


@contextmanager
def started(image: Path, folder: Path, ports: tuple[int, int, int, int]) -> Iterator[Machines]:
    """Both machines, while they run."""
    machines = Machines(image, folder, ports)
    try:
        machines.wait()
        yield machines
    finally:
        machines.end()
