"""Checks passwords against bcrypt hashes.

In: user names and passwords, many of them guesses. Out: whether they are correct. A check with a
hash of cost 10 takes 50 ms of a core. Checks run one at a time, few may wait, and a correct
password is cached: guesses delay neither threads nor scrapes.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import bcrypt

MAX_WAITING = 16
# Limit per address, so that one client does not block the others.
MAX_WAITING_PER_ADDRESS = 4
# bcrypt uses no more bytes, and its Python binding rejects longer passwords.
_MAX_PASSWORD_BYTES = 72
# The salt and digest of an unknown password.
_UNKNOWN_USER_HASH = b"$2b$%02d$22VEZxFhfui4J.Wd/sNdAefHcq1Bl74hpXHxi1NDdFl4Z28wgxETq"


class BusyError(Exception):
    """Too many checks wait."""


class ClientGoneError(ConnectionError):
    """The client has closed the connection before its password was checked."""


class _Turns:
    """One holder at a time; a limited number of clients waits, in total and per address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = threading.Lock()
        self._clients: Counter[str] = Counter()

    @contextlib.contextmanager
    def take(self, address: str) -> Iterator[None]:
        """Wait for a turn. Raises BusyError."""
        with self._lock:
            own, all_clients = self._clients[address], sum(self._clients.values())
            if own >= MAX_WAITING_PER_ADDRESS or all_clients >= MAX_WAITING:
                raise BusyError
            self._clients[address] += 1
        try:
            with self._holder:
                yield
        finally:
            with self._lock:
                self._clients[address] -= 1
                self._clients += Counter()  # without the addresses that have none


class Passwords:
    """The users and their bcrypt hashes."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = {user: text.encode() for user, text in hashes.items()}
        # One hash for each cost in use: every check takes the same time, also for an unknown user.
        costs = sorted({_cost(hashed) for hashed in self._hashes.values()})
        self._unknown = [_UNKNOWN_USER_HASH % cost for cost in costs]
        self._secret = secrets.token_bytes(32)
        self._verified: dict[str, bytes] = {}
        self._turns = _Turns()

    def __bool__(self) -> bool:
        """Whether there are users."""
        return bool(self._hashes)

    def keep_verified(self, former: Passwords) -> None:
        """Keep passwords that were verified before a reload, for users with an unchanged hash."""
        self._turns, self._secret = former._turns, former._secret
        self._verified = {
            user: login
            for user, login in former._verified.copy().items()
            if self._hashes.get(user) == former._hashes[user]
        }

    def verify(
        self, user: str, password: str, address: str, is_gone: Callable[[], bool] = lambda: False
    ) -> bool:
        """Whether the password is correct. `is_gone` is called before each computation.

        Raises BusyError and ClientGoneError.
        """
        data = password.encode()[:_MAX_PASSWORD_BYTES]
        login = hashlib.blake2b(data, key=self._secret).digest()
        if self._verified.get(user) == login:
            return True
        if is_gone():
            raise ClientGoneError
        with self._turns.take(address):
            if self._verified.get(user) == login:  # verified for another client meanwhile
                return True
            correct = self._check(self._hashes.get(user), data, is_gone)
            if correct:
                self._verified[user] = login
            return correct

    def _check(self, own: bytes | None, password: bytes, is_gone: Callable[[], bool]) -> bool:
        """Compare with one hash per cost: the user's own, and unknown ones for other costs."""
        correct = False
        for unknown in self._unknown:
            if is_gone():
                raise ClientGoneError
            if own is not None and _cost(own) == _cost(unknown):
                correct = bcrypt.checkpw(password, own)
            else:
                bcrypt.checkpw(password, unknown)
        return correct


def _cost(hashed: bytes) -> int:
    return int(hashed.split(b"$")[2])
