"""GET requests to a Redfish service (DMTF DSP0266), one at a time over one connection.

In: the settings, paths. Out: decoded JSON, or `PartError`. No session is opened: each request has
the password, so that nothing is left on the BMC when the run is killed. Functions return members of
the JSON as a text, a number, objects or a path; empty or None if the type differs.
"""

from __future__ import annotations

import base64
import http.client
import math
import re
import ssl
import time
from typing import Any, Optional, Union

import msgspec

from nodevitals.probe import ProbeError
from nodevitals.probes.bmc.parts import PartError
from nodevitals.probes.bmc.settings import RedfishSettings
from nodevitals.probes.common.https import Answer, Connection, tls_context

Json = dict[str, Any]

# A path of the service without a fragment and without characters that end the request line.
_PATH = re.compile(r"/redfish/[!\"$-~]{0,500}")
_MAX_TEXT = 256
_MAX_NUMBER = 1e9


def as_object(value: object) -> Json:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def inner(document: Json, *keys: str) -> Json:
    """The object below these keys, or an empty one."""
    for key in keys:
        document = as_object(document.get(key))
    return document


def objects(document: Json, key: str) -> list[Json]:
    """The objects of a list."""
    value = document.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(document: Json, key: str) -> str:
    """A text; '' if there is none. Some services use numbers as identifiers."""
    value = document.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER:
        return str(value)
    return value[:_MAX_TEXT] if isinstance(value, str) else ""


def number(document: Json, key: str) -> Optional[float]:
    """A number that a sensor may report."""
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and abs(value) <= _MAX_NUMBER else None


def path(value: object) -> str:
    """A path of the service; '' for any other value, such as a URL of another host."""
    return value if isinstance(value, str) and _PATH.fullmatch(value) else ""


def link(document: Json, key: str) -> str:
    """The path that a member links to; '' where it links to none."""
    return path(inner(document, key).get("@odata.id"))


def links(document: Json, key: str) -> list[str]:
    """The paths that a list links to."""
    return list(filter(None, (path(item.get("@odata.id")) for item in objects(document, key))))


ROOT = "/redfish/v1/"
# Per run, redirects included. A chassis of the new kind has one resource per part.
MAX_REQUESTS = 160
MAX_BODY_BYTES = 1024 * 1024
MAX_RUN_BYTES = 16 * 1024 * 1024
MAX_SECRET_BYTES = 4096
MAX_PAGES = 8
MAX_MEMBERS = 256
# Limits of one request, in seconds and as a share of the run, so that others have time, too.
_REQUEST_SECONDS, _SHARE = 20.0, 0.25
_REDIRECTS = (301, 302, 307, 308)
# The service does not have the resource, or does not support GET for it.
_MISSING = (404, 405, 410, 501)


class Client:
    """Sends GET requests to the service, and none after the end of the run."""

    def __init__(self, settings: RedfishSettings, until: float) -> None:
        user, password = _secret(settings.username_file), _secret(settings.password_file)
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Accept": "application/json"}
        self._headers["OData-Version"] = "4.0"
        context = tls_context(settings.ca_file, verify=not settings.insecure_skip_verify)
        self._url = settings.url.rstrip("/")
        self._connection = Connection(
            self._url, context, MAX_BODY_BYTES, server_name=settings.server_name
        )
        self._until = until
        self._seconds = min(_REQUEST_SECONDS, _SHARE * max(0.0, until - time.monotonic()))
        self._left = MAX_REQUESTS
        self._bytes = 0
        self._known: dict[str, Union[Json, PartError, None]] = {}
        self.expands = False
        """Whether the service has said that a collection can be read with its members."""
        self.failed: Optional[PartError] = None
        """The first failure of `find`."""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def get(self, where: str) -> Optional[Json]:
        """The object at a path; None if the service has none. Raises PartError, and ProbeError if
        further requests would fail, too.
        """
        if where not in self._known:
            try:
                self._known[where] = self._read(where)
            except PartError as error:
                self._known[where] = error  # several parts need the systems
        known = self._known[where]
        if isinstance(known, PartError):
            raise known
        return known

    def _read(self, where: str) -> Optional[Json]:
        answer = self._answer(where)
        if answer.status in _REDIRECTS:
            answer = self._answer(self._redirected(answer, where))
        return None if answer.status in _MISSING else self._decoded(answer, where)

    def find(self, where: str) -> Json:
        """As `get`, but empty if there is no object or the request failed."""
        try:
            return (self.get(where) if where else None) or {}
        except PartError as error:
            self.failed = self.failed or error
            return {}

    def members(self, document: Json, key: str, limit: int = MAX_MEMBERS) -> list[Json]:
        """The members of the collection that is linked there."""
        complete: list[Json] = []
        for member in self._listed(link(document, key), limit):
            resource = member if "Id" in member else self.find(path(member.get("@odata.id")))
            if resource:
                complete.append(resource)
        return complete

    def _listed(self, where: str, limit: int) -> list[Json]:
        """The members; only their links if the service cannot expand them."""
        if not where:
            return []
        if self.expands:
            try:
                first = self.get(f"{where}?$expand=.($levels=1)")
            except PartError:
                first = None
            if first:
                return objects(first, "Members")[:limit]
            self.expands = False
        listed: list[Json] = []
        for _ in range(MAX_PAGES):
            page = self.find(where)
            listed += objects(page, "Members")
            where = path(page.get("Members@odata.nextLink"))
            if not where or len(listed) >= limit:
                break
        return listed[:limit]

    def _answer(self, where: str) -> Answer:
        what = f"GET {self._url}{where}"
        left = self._until - time.monotonic()
        if left <= 0:
            raise PartError("timeout", f"no time left for {what}")
        if self._left <= 0:
            raise PartError("too_long", f"over {MAX_REQUESTS} requests, before {what}")
        self._left -= 1
        seconds = min(left, self._seconds)
        deadline = time.monotonic() + seconds
        try:
            answer = self._connection.get(where, self._headers, deadline)
        except ssl.SSLCertVerificationError as error:
            text = f"{what}: {error.verify_message}: check ca_file and server_name"
            raise ProbeError("tls", text) from None
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if isinstance(error, TimeoutError) or time.monotonic() >= deadline:
                text = f"{what}: no complete answer within {seconds:.1f} s"
                raise PartError("timeout", text) from None
            text = f"{what}: {getattr(error, 'strerror', None) or error or type(error).__name__}"
            raise PartError("no_answer", text) from None
        if answer.status == 401:
            # No further request: many BMCs lock the user after a few failures.
            raise ProbeError("unauthorized", f"{what}: 401: the password is not accepted")
        return answer

    def _redirected(self, answer: Answer, where: str) -> str:
        """The target of a redirect within the service, such as the same path with a final slash."""
        target = answer.headers.get("Location", "")
        is_whole = target.lower().startswith(f"{self._url.lower()}/")
        redirected = path(target[len(self._url) :] if is_whole else target)
        if not redirected or redirected == where:
            raise PartError("no_answer", f"GET {self._url}{where}: redirected to {target[:160]!r}")
        return redirected

    def _decoded(self, answer: Answer, where: str) -> Json:
        what = f"GET {self._url}{where}"
        if answer.status == 403:
            raise PartError("permission", f"{what}: 403: the user may not read it")
        if answer.status != 200:
            raise PartError("no_answer", f"{what}: {answer.status}")
        self._bytes += len(answer.body)
        if len(answer.body) > MAX_BODY_BYTES or self._bytes > MAX_RUN_BYTES:
            text = f"{what}: over {MAX_BODY_BYTES} bytes, or {MAX_RUN_BYTES} in this run"
            raise PartError("too_long", text)
        try:
            document: object = msgspec.json.decode(answer.body)
        except (ValueError, RecursionError) as error:
            raise PartError("malformed", f"{what}: {error}") from None
        if not isinstance(document, dict):
            raise PartError("malformed", f"{what}: no object")
        return document


def _secret(file: str) -> str:
    """The first line of a file. Raises ProbeError."""
    try:
        with open(file, encoding="utf-8") as opened:
            secret = opened.read(MAX_SECRET_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        text = f"{file}: {getattr(error, 'strerror', None) or 'not in UTF-8'}"
        raise ProbeError("secret", text) from None
    if not secret or not secret.isprintable():
        raise ProbeError("secret", f"{file}: empty, or more than one line")
    return secret
