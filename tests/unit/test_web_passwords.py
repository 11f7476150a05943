"""Password checks: the work of each, which clients wait, and what a reload keeps.

bcrypt itself is replaced by one that records each computation, and waits where a test says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress

import bcrypt
import pytest

from nodevitals.web.passwords import (
    MAX_WAITING,
    MAX_WAITING_PER_ADDRESS,
    BusyError,
    ClientGoneError,
    Passwords,
)
from testbed.node import wait_until

HERE = "192.0.2.1"


class Computations:
    """The cost of every bcrypt computation so far; `go` lets them run."""

    def __init__(self, checkpw: Callable[[bytes, bytes], bool]) -> None:
        self._checkpw = checkpw
        self.costs: list[int] = []
        self.go = threading.Event()
        self.go.set()

    def checkpw(self, password: bytes, hashed: bytes) -> bool:
        """Record and compute."""
        self.costs.append(int(hashed.split(b"$")[2]))
        assert self.go.wait(60)
        return self._checkpw(password, hashed)

    def of(self, check: Callable[[], bool]) -> tuple[bool, list[int]]:
        """Return the result of one check and the costs of its computations."""
        self.costs.clear()
        return check(), sorted(self.costs)


@pytest.fixture
def computations(monkeypatch: pytest.MonkeyPatch) -> Computations:
    found = Computations(bcrypt.checkpw)
    monkeypatch.setattr(bcrypt, "checkpw", found.checkpw)
    return found


def hashed(password: str, cost: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


@pytest.mark.parametrize("costs", [(4, 4), (4, 6), (5, 6)])
def test_every_login_is_the_same_work(computations: Computations, costs: tuple[int, int]) -> None:
    """Whether or not the user exists, whatever the cost of its hash."""
    users = {f"user-{number}": hashed("right", cost) for number, cost in enumerate(costs)}
    for user, password in (
        ("user-0", "wrong"),
        ("user-1", "wrong"),
        ("user-0", "right"),
        ("user-1", "right"),
        ("nobody", "right"),
        ("", ""),
        ("nobody", "a" * 100),
        ("user-1", "a\0b"),
    ):
        passwords = Passwords(users)
        check = computations.of(lambda: passwords.verify(user, password, HERE))  # noqa: B023
        assert check == (user in users and password == "right", sorted(set(costs)))


def test_correct_password_is_computed_once(computations: Computations) -> None:
    passwords = Passwords({"a": hashed("right"), "b": hashed("right")})
    assert computations.of(lambda: passwords.verify("a", "right", HERE)) == (True, [4])
    assert computations.of(lambda: passwords.verify("a", "right", HERE)) == (True, [])
    assert computations.of(lambda: passwords.verify("a", "wrong", HERE)) == (False, [4])
    assert computations.of(lambda: passwords.verify("a", "right", HERE)) == (True, [])
    assert computations.of(lambda: passwords.verify("b", "right", HERE)) == (True, [4])


def test_clients_with_the_same_password_wait_for_one_computation(
    computations: Computations,
) -> None:
    passwords = Passwords({"a": hashed("right")})
    computations.go.clear()
    with ThreadPoolExecutor(3) as pool:
        logins = [pool.submit(passwords.verify, "a", "right", HERE) for _ in range(3)]
        wait_until(lambda: computations.costs)
        computations.go.set()
        assert [login.result(60) for login in logins] == [True] * 3
    assert computations.costs == [4]


def test_reload_keeps_verified_passwords_of_unchanged_hashes(computations: Computations) -> None:
    same, changed, removed = hashed("right"), hashed("right"), hashed("right")
    former = Passwords({"same": same, "changed": changed, "removed": removed})
    for user in ("same", "changed", "removed"):
        assert former.verify(user, "right", HERE)
    now = Passwords({"same": same, "changed": hashed("new"), "added": hashed("right")})
    now.keep_verified(former)
    assert computations.of(lambda: now.verify("same", "right", HERE)) == (True, [])
    assert computations.of(lambda: now.verify("changed", "right", HERE)) == (False, [4])
    assert computations.of(lambda: now.verify("changed", "new", HERE)) == (True, [4])
    assert computations.of(lambda: now.verify("removed", "right", HERE)) == (False, [4])
    assert computations.of(lambda: now.verify("added", "right", HERE)) == (True, [4])


def test_few_guesses_wait_and_one_address_keeps_no_other_out(computations: Computations) -> None:
    """Of each address one guess more than may wait is sent: exactly that one is refused."""
    users = {"a": hashed("right")}
    passwords = Passwords(users)
    assert passwords.verify("a", "right", HERE)
    computations.go.clear()
    with ThreadPoolExecutor(2 * MAX_WAITING) as pool:
        guesses: list[Future[bool]] = []
        for number in range(MAX_WAITING // MAX_WAITING_PER_ADDRESS):
            address = f"198.51.100.{number}"
            own = [
                pool.submit(passwords.verify, "a", "wrong", address)
                for _ in range(MAX_WAITING_PER_ADDRESS + 1)
            ]
            refused = wait(own, 60, FIRST_COMPLETED).done.pop()
            assert isinstance(refused.exception(), BusyError)
            guesses += (future for future in own if future is not refused)
        with pytest.raises(BusyError):
            passwords.verify("a", "wrong", HERE)
        assert passwords.verify("a", "right", HERE), "a verified password does not wait"
        reloaded = Passwords(users)
        reloaded.keep_verified(passwords)
        with pytest.raises(BusyError):
            reloaded.verify("a", "wrong", HERE)
        computations.go.set()
        assert [guess.result(60) for guess in guesses] == [False] * MAX_WAITING
    assert passwords.verify("a", "wrong", HERE) is False


def test_guess_of_a_client_that_is_gone_is_not_computed(computations: Computations) -> None:
    """Neither as it arrives, nor when it has left before its turn."""
    passwords = Passwords({"a": hashed("right", 4), "b": hashed("right", 5)})
    for answers, computed in ((iter([True]), 0), (iter([False, True]), 0), (iter([False] * 3), 2)):
        computations.costs.clear()
        with suppress(ClientGoneError):
            assert passwords.verify("a", "right", HERE, answers.__next__)
            assert computed == 2
        assert len(computations.costs) == computed
