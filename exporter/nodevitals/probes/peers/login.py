"""Logs in at SSH servers, with the system's ssh and a key that may only run `true` there.

In: a server, settings. Out: a `LoginResult`. ssh reads no configuration, asks no agent and no
person, forwards nothing, and accepts only the host keys of a file. What a server sends decides
about this server alone.
"""

from __future__ import annotations

import binascii
import os
import stat
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Optional

import msgspec

from nodevitals.document.local import LocalFile, LocalSecret
from nodevitals.errors import ProbeError
from nodevitals.linux import tool
from nodevitals.probe import Seconds
from nodevitals.probes.peers.dial import Peer

REASONS = ("banner", "host_key", "key_refused", "login", "slow")
"""banner: the server sent its version, and nothing that a login needs. login: it closed the
connection, or the command failed. slow: it accepted the key, and the command did not end in time.
"""
# A path that ssh neither splits nor expands.
FilePath = Annotated[LocalFile, msgspec.Meta(pattern=r"^/[^\s\"'%$\\]*\Z")]
SecretPath = Annotated[LocalSecret, msgspec.Meta(pattern=r"^/[^\s\"'%$\\]*\Z")]
DEFAULT_PORT = 22
_OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "GlobalKnownHostsFile": "/dev/null",
    "UpdateHostKeys": "no",
    "CheckHostIP": "no",
    "IdentitiesOnly": "yes",
    "IdentityAgent": "none",
    "PreferredAuthentications": "publickey",
    "ControlMaster": "no",
    "ControlPath": "none",
    "ProxyCommand": "none",
    "ForwardAgent": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "ConnectionAttempts": "1",
    "KexAlgorithms": "^curve25519-sha256",  # nothing secret follows: cheaper than the default
    "LogLevel": "VERBOSE",  # with the line that the key was accepted
}
_ACCEPTED, _REFUSED = "Authenticated to ", "Permission denied ("
# PROTOCOL.key of OpenSSH: the magic, the length of a name, the name of the cipher.
_OPENSSH, _MAGIC = b"-----BEGIN OPENSSH PRIVATE KEY-----", b"openssh-key-v1\0"
_CIPHER = slice(19, 23)
_HEAD_BYTES = 1024
_UNKNOWN_HOST = "Host key verification failed."


class LoginSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to log in at the peers with the protocol ssh, to run `true` there. On the peers, the
    user's authorized_keys has `restrict,command="true"` before the key.
    """

    user: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,31}\Z")]
    """User on the peers. Example: `nodevitals`"""
    key_file: SecretPath
    """Private key without a passphrase. Example: `/etc/nodevitals/secrets/peer-key`"""
    known_hosts_file: FilePath
    """Host keys of the peers, by the names on the lists. Example: `/etc/nodevitals/known_hosts`"""
    timeout: Seconds = 3.0
    """Time that one login may take."""
    per_run: Annotated[int, msgspec.Meta(ge=1, le=20)] = 2
    """Maximum number of logins in one run, one after the other; of more peers, those that were
    logged in least recently."""


class LoginResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of one login. `reason` is '' if it succeeded, and then `seconds` is its time."""

    reason: str
    seconds: Optional[float] = None


class PeerLogin(msgspec.Struct, frozen=True, array_like=True):
    """The result of the last login at a peer, and when that was (seconds since the epoch)."""

    peer: Peer
    result: LoginResult
    time: float


def check_files(settings: LoginSettings) -> None:
    """Raise ProbeError where ssh cannot use the files: no peer is to blame for this."""
    try:
        owner = os.stat(settings.key_file)
        key = _head(settings.key_file)
    except OSError as error:
        raise ProbeError("key", f"login.key_file: {error.strerror}: {error.filename}") from None
    if owner.st_uid == os.geteuid() and stat.S_IMODE(owner.st_mode) & 0o077:
        raise ProbeError("key", f"login.key_file: ssh refuses it: chmod 0400 {settings.key_file}")
    if problem := _unusable(key):
        raise ProbeError("key", f"login.key_file: {problem}: {settings.key_file}")
    try:
        _head(settings.known_hosts_file)
    except OSError as error:
        text = f"login.known_hosts_file: {error.strerror}: {error.filename}"
        raise ProbeError("known_hosts", text) from None


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_HEAD_BYTES)


def _unusable(key: bytes) -> str:
    """Why a file is no key that ssh uses without a person; '' where it may be one."""
    first, _, rest = key.partition(b"\n")
    if b"PRIVATE KEY" not in first:
        return "it begins as no private key does"
    body = binascii.a2b_base64(rest[:64]) if first == _OPENSSH else b""
    has_passphrase = body.startswith(_MAGIC) and body[_CIPHER] != b"none"
    return "it has a passphrase" if has_passphrase or b"ENCRYPTED" in key else ""


def command(peer: Peer, address: str, settings: LoginSettings) -> list[str]:
    """The words that start ssh for a peer at its address."""
    is_usual = peer.port == DEFAULT_PORT
    options = {
        **_OPTIONS,
        "UserKnownHostsFile": settings.known_hosts_file,
        "HostKeyAlias": peer.host if is_usual else f"[{peer.host}]:{peer.port}",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    target = ["-p", str(peer.port), "-l", settings.user, "-i", settings.key_file, "--", address]
    return ["ssh", "-F", "none", "-a", "-x", "-T", "-n", *words, *target, "true"]


def judge(text: str, address: str, status: int | None) -> str:
    """The reason of a login by what ssh printed and its exit status, None where it was killed.

    Raises ProbeError where no server had a part in it.
    """
    if status == 0:
        return ""
    if _ACCEPTED in text:
        return "slow" if status is None else "login"
    if status is None:
        return "banner"
    if _UNKNOWN_HOST in text:
        return "host_key"
    if _REFUSED in text:
        return "key_refused"
    if address in text or "remote host" in text:
        return "login"
    lines = text.split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
    raise ProbeError("ssh", f"ssh: status {status}: {last[:200]}")


def log_in(peer: Peer, address: str, settings: LoginSettings, seconds: float) -> LoginResult:
    """Log in at a peer, for at most so many seconds. Raises ProbeError."""
    started = time.monotonic()
    try:
        output = tool.run(command(peer, address, settings), seconds)
    except tool.UnfinishedError as error:
        too_long = error.reason == "too_long"
        return LoginResult("login" if too_long else judge(error.printed, address, None))
    taken = time.monotonic() - started
    reason = judge(output.text, address, output.status)
    return LoginResult(reason, None if reason else taken)


def due_for_login(
    peers: Sequence[Peer], known: Mapping[Peer, PeerLogin], round_seconds: float
) -> list[Peer]:
    """Peers in the order of their next login: those without one first, then those whose last login
    is oldest. One that failed is tried again soon, and holds up the others for less than a round.
    """

    def key(peer: Peer) -> float:
        last = known.get(peer)
        if last is None:
            return 0.0
        return last.time - (0.9 * round_seconds if last.result.reason else 0.0)

    return sorted(peers, key=key)
