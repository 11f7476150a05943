"""The remedies for failed runs. In: a probe and the reason of its failure. Out: one instruction.

A probe may have its own remedies in its class, `Probe.remedies`. tests/contract/test_doctor.py
verifies that every reason in the code has one. `{target}` is the target's name; `*` is for every
probe.
"""

from __future__ import annotations

from nodevitals.commands.rights import DROP_IN
from nodevitals.probes import registered

_READ_LOG = "read the trace: journalctl -u nodevitals | grep -A20 '{probe}'; report it"
_CHECK = "check the file: nodevitals check-config /etc/nodevitals/nodevitals.yaml"
_SYSFS = "mount the node's sysfs there, or set --path.sysfs of the agent: mount | grep sysfs"
_PROCFS = "mount the node's procfs there, or set --path.procfs of the agent: mount | grep proc"
_PERMISSION = "run the agent as root with the capabilities of the unit: systemctl cat nodevitals"
_STATE = "make the directory writable and free space on it: ls -ld and df -h of state_directory"
_STUCK = "find the call: ps -eo pid,stat,wchan:30,args | grep ' D'; then dmesg -T | tail -50"
_NAME = "check the name: getent hosts NAME; cat /etc/resolv.conf"
_KUBELET = "check the kubelet: systemctl status kubelet; journalctl -u kubelet | tail -50"
_ROLE = "bind the chart's role to the agent: helm upgrade --set rbac.create=true"
_FREE = "free space: df -h {target}; df -i {target}"
_NFS = "check the file server: mount | grep {target}; rpcinfo -t SERVER nfs; then remount"
_SYSTEMD = "check systemd and its bus: systemctl status; systemctl status dbus; dmesg -T | tail"
_DRIVER = "load the driver: modprobe nvidia; dmesg -T | grep -i nvrm | tail -20"

REMEDIES: dict[str, dict[str, str]] = {
    "*": {
        "absent": "reseat or reload what is missing, or set probes.{probe}.enabled: auto if this"
        " node has none",
        "encoding": _READ_LOG,
        "exception": _READ_LOG,
        "file_sd": "create or correct the file, as `file_sd` names it: ls -l FILE; " + _CHECK,
        "garbage": _READ_LOG,
        "invalid": _READ_LOG,
        "lock": "use a directory that only root can write to: ls -ld /run/nodevitals",
        "missing": "install the program, or put it on the agent's PATH:"
        " systemctl show nodevitals -p Environment",
        "name": _NAME,
        "permission": _PERMISSION,
        "procfs": _PROCFS,
        "spawn": "raise the limits of processes and descriptors: systemctl show nodevitals"
        " -p TasksMax -p LimitNOFILE",
        "start": "run the program by hand, and repair what it says: ls -l PROGRAM",
        "stuck": _STUCK,
        "sysfs": _SYSFS,
        "timeout": "find what is slow: nodevitals probe {probe}; raise probes.{probe}.timeout only"
        " if that is its usual time",
        "tls": "repair or renew the certificate: openssl x509 -noout -subject -enddate -in FILE",
        "too_large": "configure fewer devices or pods per target: probes.{probe}",
        "too_long": "run the program by hand: its output is over 1 MiB",
        "unreadable": "read the error of the device: nodevitals history; dmesg -T | tail -50; reset"
        " the device or reboot the node",
        "unusable": "repair or remove the site's probe: nodevitals probe {probe}",
        "worker_died": "read its last output: journalctl -u nodevitals | grep -A20 '{probe}'; and"
        " whether a vendor's library crashed: dmesg -T | grep segfault",
    },
    "ascend": {
        "busy": "end the other npu-smi or hccn_tool: ps aux | grep -e npu-smi -e hccn_tool",
        "crashed": "run npu-smi info by hand; reinstall the driver if it crashes there, too",
        "driver": "load the driver and let the agent open it: npu-smi info; systemctl edit"
        " nodevitals: SupplementaryGroups=HwHiAiUser",
        "in_use": "stop the container that owns the NPUs exclusively: npu-smi info; docker ps",
        "npu_smi": "run npu-smi info by hand; check dmesg -T and the driver's log in"
        " /var/log/npu/slog",
    },
    "disks": {
        "permission": "grant CAP_SYS_ADMIN and CAP_SYS_RAWIO: " + DROP_IN,
    },
    "fabric": {
        "list": "correct the lists of peers: " + _CHECK,
        "listen": "free the port, or set probes.fabric.listen_address: ss -ltnp",
        "not_listed": "add this node to the lists, or set probes.fabric.name to its name there",
        "secrets": "make the file readable for the agent: ls -l FILE",
        "token": "write a token of one line into the file: openssl rand -hex 32",
    },
    "history": {
        "corrupt": "check the disk: dmesg -T | grep -i error",
        "disk_full": "free space: df -h /var/lib/nodevitals",
        "in_use": "stop the other agent that uses this state directory: ps aux | grep nodevitals",
        "state_directory": _STATE,
    },
    "jobs": {
        "processes": "let the agent see the node's processes: hostPID: true in Kubernetes",
    },
    "kernel_log": {
        "boot_id": _PROCFS,
        "kernel_log": "grant CAP_SYSLOG, and /dev/kmsg in a container: systemctl cat nodevitals",
    },
    "kubernetes": {
        "api": "check the API server: kubectl get --raw /readyz",
        "forbidden": _ROLE,
        "kubelet": _KUBELET,
        "missing": "install h2: pipx inject nodevitals h2",
        "no_access": "mount /var/lib/kubelet/pod-resources into the agent's pod; run it as root",
        "no_api": "set KUBERNETES_SERVICE_HOST, or probes.kubernetes.source: kubelet",
        "no_ca": "mount the service account's CA: automountServiceAccountToken: true",
        "no_token": "mount the service account's token: automountServiceAccountToken: true",
        "unauthorized": "renew the agent's token: kubectl rollout restart the agents' DaemonSet",
    },
    "bmc": {
        "device_missing": "load the driver: modprobe ipmi_devintf ipmi_si; ls -l /dev/ipmi0; in a"
        " container, mount the device",
        "missing": "install ipmitool on the node, or in the agent's image",
        "no_ca": "write the certificate of the BMC's authority into probes.bmc.redfish.ca_file",
        "secret": "write one line into the file, for the agent to read: ls -l FILE",
        "stuck": "reset the BMC when no one needs its console: ipmitool mc reset cold; then reboot"
        " the node if the driver still hangs",
        "tls": "renew the BMC's certificate, or correct ca_file and server_name in"
        " probes.bmc.redfish",
        "unauthorized": "correct user and password in the files of probes.bmc.redfish; see in the"
        " BMC whether the user is locked",
    },
    "maintenance": {
        "content": "write it anew: nodevitals maintenance start, or nodevitals maintenance end",
        "file": "repair its disk or its permissions: ls -l FILE; or nodevitals maintenance end",
    },
    "mounts": {
        "descriptors": "raise the limit: systemctl edit nodevitals: LimitNOFILE=65536",
        "disk_full": _FREE,
        "interference": "stop what removes the agent's files in {target}/.nodevitals",
        "io_error": "check the disk or the server: dmesg -T | tail -50; then fsck or remount",
        "mismatch": "take the node out of service: {target} returned other data than was written;"
        " check its storage",
        "missing": "mount it: mount {target}; then findmnt {target}",
        "mountinfo": _PROCFS,
        "not_found": "remount it: umount -l {target}; mount {target}",
        "permission": "let root write there (root_squash?), make {target}/.nodevitals owned by root"
        " with mode 0700, or set access: read",
        "quota": "raise or free the quota: quota -s; lfs quota -h {target}",
        "read_only": "find out why: dmesg -T | tail -50; then mount -o remount,rw {target}",
        "server_gone": "restart the mount's client: umount -l {target}; mount {target}",
        "server_timeout": _NFS,
        "short_read": "check the storage: {target} returned less than was written; dmesg -T",
        "stale_handle": "remount it: umount -l {target}; mount {target}",
        "unexpected_fstype": "mount the right file system, or correct fstype: findmnt {target}",
        "unexpected_source": "mount the right source, or correct source: findmnt {target}",
        "timeout": _NFS,
        "unknown": "read the detail; then dmesg -T | tail -50",
    },
    "nvidia": {
        "driver_not_loaded": _DRIVER,
        "library_missing": "install the driver's libnvidia-ml.so.1: ldconfig -p | grep nvidia-ml",
        "no_access": "restart the agent's container (nvidia-container-toolkit), or check"
        " ls -l /dev/nvidia*",
        "version_mismatch": "reboot the node, or reload the driver: rmmod nvidia; modprobe nvidia",
    },
    "peers": {
        "key": "write a private key without a passphrase there, readable for the agent alone:"
        " chown nodevitals FILE; chmod 0400 FILE",
        "known_hosts": "write the host keys there: ssh-keyscan -H NODE…, compared with the nodes'",
        "local": "restore the node's network: ip route; ip -brief address",
        "missing": "install openssh-client, or remove probes.peers.login",
        "ssh": "run ssh as the agent's user: sudo -u nodevitals ssh -v NODE",
        "too_many": "list fewer peers in probes.peers",
    },
    "profile": {
        "profile": "correct the file: nodevitals profile check FILE; until then the last good one"
        " counts",
    },
    "scripts": {
        "folder": "check the path and its permissions: ls -ld FOLDER; then " + _CHECK,
        "missing": "put the script back, or reload the agent: systemctl reload nodevitals",
        "start": "start it by hand: FOLDER/{target}; check its first line and permissions",
        "stuck": "find what it hangs in: ps -eo pid,stat,wchan:30,args | grep ' D'",
        "untrusted": "only root may be able to change it: chown root PATH; chmod go-w PATH",
        "user": "create the user, or correct it in probes.scripts: " + _CHECK,
    },
    "selfcheck": {
        "missing": "install a tool (nvbandwidth, mbw, perftest, nccl-tests, dcgmi) on the PATH of"
        " the agent has it, or set probes.selfcheck.enabled: false",
    },
    "services": {
        "closed": _SYSTEMD,
        "missing": "let the agent see the bus: ls -l /run/dbus/system_bus_socket; in a container,"
        " hostPaths: [/run/dbus]; or empty probes.services.expected",
        "mountinfo": _PROCFS,
        "no_systemd": "run the agent where systemd is the first process, or set"
        " probes.services.enabled: false",
        "permission": "permit the agent to use the bus: busctl list; user 0, and no AppArmor or"
        " SELinux profile that denies D-Bus",
        "protocol": "check what answers there: ss -xlp | grep system_bus_socket",
        "refused": _SYSTEMD,
        "timeout": _SYSTEMD,
        "too_long": "find what makes so many units: systemctl list-units --failed | wc -l",
    },
    "switches": {
        "ibnetdiscover": "write it again: ibnetdiscover > FILE",
        "lldp": "start lldpd and let the agent use its socket: systemctl status lldpd;"
        " SupplementaryGroups=_lldpd",
        "ports_file": "correct the file: " + _CHECK,
    },
    "transceivers": {
        "crashed": "read the port by hand: ethtool -m INTERFACE; dmesg -T | tail -50",
        "hung": "see where the driver hangs: dmesg -T | tail -50; leave the port out:"
        " probes.transceivers.exclude",
        "permission": "grant CAP_NET_ADMIN: " + DROP_IN,
        "slow": "raise probes.transceivers.timeout and interval: mlxlink takes seconds per port",
    },
}
UNKNOWN_REMEDY = "see the reason: nodevitals history --device {target}; nodevitals probe {probe}"


def remedies_of(probe: str) -> dict[str, str]:
    """The remedies by reason: those for every probe, those of this table, those of the class."""
    kind = registered().get(probe)
    own = kind.remedies if kind else {}
    return {**REMEDIES["*"], **REMEDIES.get(probe, {}), **own}


def remedy_of(probe: str, reason: str, target: str) -> str:
    """The remedy for a failed run; for an unknown reason, where to read more."""
    text = remedies_of(probe).get(reason, UNKNOWN_REMEDY)
    return text.replace("{target}", target).replace("{probe}", probe)
