"""Names of this hub: which Host a client without a login may use, which page may send a form.

In: headers of a request, `external_url`. Out: whether they belong to this hub.
"""

from __future__ import annotations

import contextlib
import ipaddress
from urllib.parse import urlsplit

# No one can register a name below these, so no page of another site has one.
_PRIVATE = (".svc", ".cluster.local", ".internal", ".localhost")


def host_of(url: str) -> str:
    """Host and port of a URL, '' where there is none."""
    with contextlib.suppress(ValueError):
        return urlsplit(url).netloc.lower()
    return ""


def is_own_host(host: str, external_url: str) -> bool:
    """Whether a Host may be this hub: that of `external_url`, an address, a name that is not
    public. A page that has its own name resolve to the hub's address sends another one (DNS
    rebinding). Without `external_url`, any.
    """
    if not external_url or host.lower() == host_of(external_url):
        return True
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return bool(name) and ("." not in name or name.endswith(_PRIVATE))


def is_own_origin(scheme: str, headers: dict[str, str], external_url: str) -> bool:
    """Whether a page of this hub sent a request, or no browser at all: a client that is no browser
    sends neither Origin nor Sec-Fetch-Site.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin", "none"):
        return False
    if origin is None:
        return True
    host = headers.get("host", "").lower()
    own = [f"{scheme}://{host}"]
    if external_url:
        own.append(f"{urlsplit(external_url).scheme}://{host_of(external_url)}".lower())
    # A TLS proxy in front of this server changes the scheme.
    return origin.lower() in own or (site == "same-origin" and host_of(origin) == host != "")
