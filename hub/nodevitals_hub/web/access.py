"""Authenticates the client of a request, and determines its role.

In: the header Authorization; users with passwords (web configuration file), bearer tokens (a YAML
file), the role of clients without a login. Out: a name and a role, or a refusal.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NamedTuple, cast

import msgspec
from litestar.connection import ASGIConnection
from litestar.exceptions import PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from nodevitals.checks.model import ROLES, Requester, Role
from nodevitals.document import DocumentError, Problem, convert, read_file
from nodevitals.document.settings import SettingsDocument
from nodevitals.errors import Wording
from nodevitals.web.passwords import MAX_WAITING, BusyError, Passwords
from nodevitals_hub.settings.hub import AccessSettings

TOKENS_CHECK_SECONDS = 1.0
_MAX_CREDENTIALS = 1024
# The output of `printf %s "$TOKEN" | sha256sum` when TOKEN is not set.
_SUM_OF_NOTHING = hashlib.sha256(b"").hexdigest()
# Separate threads: waiting passwords must not block the threads of other work, and a password
# beyond the limit still needs a thread to be refused.
_PASSWORD_THREADS = ThreadPoolExecutor(MAX_WAITING + 2, thread_name_prefix="password")

log = logging.getLogger(__name__)


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the tokens file: the token, or its SHA-256 in hexadecimal."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    role: Role
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")] | None = None
    token: Annotated[str, msgspec.Meta(min_length=16, max_length=512)] | None = None

    def digest(self) -> bytes:
        """The SHA-256 of the token."""
        if self.token is not None:
            return hashlib.sha256(self.token.encode()).digest()
        return bytes.fromhex(self.sha256 or "")


class TokensFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the tokens file, below an added key."""

    tokens: tuple[Token, ...] = ()


class Client(NamedTuple):
    """The client that sent a request."""

    name: str
    role: Role
    by_token: bool = False
    logged_in: bool = False


class LoginError(Exception):
    """The credentials are wrong or missing."""


class TooManyLoginsError(Exception):
    """Too many passwords wait to be verified."""


def rank(role: Role) -> int:
    """The rank of a role; a larger one permits more."""
    return ROLES.index(role)


def parse_tokens(text: bytes) -> tuple[Token, ...]:
    """The entries of a tokens file. Raises DocumentError."""
    problems: list[Problem] = []
    document = SettingsDocument(b"tokens:\n" + text)
    content = cast("TokensFile | None", convert(document.values(), TokensFile, "", problems))
    tokens = () if content is None else content.tokens
    for number, token in enumerate(tokens):
        if token.sha256 == _SUM_OF_NOTHING:
            problems.append(Problem(f"tokens[{number}].sha256", "is the sum of no token at all"))
        if (token.sha256 is None) == (token.token is None):
            problems.append(Problem(f"tokens[{number}]", "write either sha256 or token"))
    error = document.error(problems)
    if error is not None:
        # No line numbers, which the added first line shifts, and no values, which may be tokens.
        found_paths = sorted({problem.path for problem in error.problems if problem.path})
        paths = ", ".join(found_paths[:5]) or "not a list"
        raise DocumentError(
            [Problem("", f"wrong: {paths}: write a list of {{name, role, sha256}}")]
        )
    return tokens


class Tokens:
    """The tokens of a file, which is read again when it changes."""

    def __init__(self) -> None:
        self._tokens: Sequence[tuple[bytes, Token]] = ()
        self._seen: tuple[object, ...] | None = None

    def __bool__(self) -> bool:
        """Whether there are tokens."""
        return bool(self._tokens)

    def find(self, sent: str) -> Token | None:
        """The entry of a token; compares all entries, so that the time does not depend on it."""
        digest = hashlib.sha256(sent.encode()).digest()
        entry = None
        for expected, token in self._tokens:
            if hmac.compare_digest(expected, digest):
                entry = token
        return entry

    def refresh(self, path: str | None) -> None:
        """Read the file if it has changed; if it is not usable, this is logged and no token is
        valid.
        """
        seen = self._state_of(path)
        if seen == self._seen:
            return
        tokens = () if path is None else self._read(path)
        # One assignment: other threads handle requests meanwhile.
        self._seen, self._tokens = seen, [(token.digest(), token) for token in tokens]

    def _read(self, path: str) -> tuple[Token, ...]:
        try:
            tokens = parse_tokens(read_file(path))
        except DocumentError as error:
            text = error.problems[0].message
            log.error("access.tokens_file %s: %s; no token is valid", path, text)
            return ()
        others = stat.S_IRGRP | stat.S_IROTH
        if any(token.token for token in tokens) and self._mode_of(path) & others:
            log.error("%s: has tokens in clear and others may read it: chmod 600", path)
            return ()
        return tokens

    @staticmethod
    def _state_of(path: str | None) -> tuple[object, ...]:
        if path is None:
            return (None,)
        try:
            status = os.stat(path)
        except OSError as error:
            return (path, error.errno)
        return (path, status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)

    @staticmethod
    def _mode_of(path: str) -> int:
        try:
            return os.stat(path).st_mode
        except OSError:
            return 0o777


class Access:
    """Determines the client of a request."""

    def __init__(self, settings: AccessSettings, passwords: Passwords | None = None) -> None:
        self.settings = settings
        self.passwords = passwords or Passwords({})
        self.tokens = Tokens()
        self.tokens.refresh(settings.tokens_file)

    @property
    def has_users(self) -> bool:
        """Whether a person can log in."""
        return bool(self.passwords)

    async def client_of(self, authorization: str, address: str) -> Client:
        """The client that sends this header. Raises LoginError and TooManyLoginsError."""
        if not authorization:
            if self.settings.anonymous is None:
                raise LoginError(Wording("log in: this hub has no access without a login"))
            return Client("", self.settings.anonymous)
        scheme, _, value = authorization.partition(" ")
        value = value.strip()
        if len(value) > _MAX_CREDENTIALS:
            raise LoginError(Wording("the credentials are too long"))
        if scheme.lower() == "bearer":
            token = self.tokens.find(value)
            if token is None:
                raise LoginError(Wording("this token is not valid"))
            return Client(token.name, token.role, by_token=True, logged_in=True)
        if scheme.lower() == "basic":
            return await self._user_of(value, address)
        raise LoginError("Authorization: use Basic or Bearer")

    async def _user_of(self, value: str, address: str) -> Client:
        try:
            text = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError):
            raise LoginError("Authorization: not Base64 of NAME:PASSWORD in UTF-8") from None
        name, colon, password = text.partition(":")
        if not colon or not self.passwords:
            raise LoginError(Wording("the user or the password is wrong"))
        try:
            correct = await asyncio.get_running_loop().run_in_executor(
                _PASSWORD_THREADS, self.passwords.verify, name, password, address
            )
        except BusyError:
            text = Wording("too many logins at a time: try again in a second")
            raise TooManyLoginsError(text) from None
        if not correct:
            raise LoginError(Wording("the user or the password is wrong"))
        return Client(name, self.settings.users.get(name, "read"), logged_in=True)


def needs(role: Role) -> Guard:
    """A guard for a Litestar handler: `@post(PATH, guards=[needs("act")])`. Without a guard, GET
    and HEAD need `read`, and the other methods need `run`.
    """

    def guard(connection: ASGIConnection, _handler: BaseRouteHandler) -> None:  # type: ignore[type-arg]
        requester = connection.scope.get("user")
        if not isinstance(requester, Requester) or rank(requester.role) < rank(role):
            raise PermissionDeniedException(detail=Wording("needs the role {role}", role=role))

    return guard
