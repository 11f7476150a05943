"""The entry point of `nodevitals hub`: runs the hub in this process until SIGTERM.

In: paths and an address. Out: nothing, or DocumentError for the configuration, or StartError, whose
text is one line. If a library is missing, importing this module fails, not a later start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodevitals import logs
from nodevitals.document import DocumentError
from nodevitals.errors import ProbeError
from nodevitals_hub.service import Service, check
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.web.server import bind

__all__ = ["StartError", "check", "serve"]
LAST_LINES_SECONDS = 0.2


class StartError(Exception):
    """The hub cannot run."""


def serve(
    config: str | None,
    listen: str,
    web_config: str | None,
    set_up_log: Callable[[], logs.QueuedHandler],
) -> None:
    """Run until SIGTERM. The log is set up after the errors that belong on the terminal."""
    try:
        listening = bind(listen)
    except ValueError as error:
        raise StartError(f"--web.listen-address: {error}") from None
    except OSError as error:
        text = f"cannot listen on {listen}: {error.strerror}"
        raise StartError(f"{text}; choose another --web.listen-address") from None
    try:
        service = Service(config, listen, web_config, listening=listening)
    except (DocumentError, ProbeError, StoreError) as error:
        listening.close()
        if isinstance(error, DocumentError):
            raise
        raise StartError(str(error)) from None
    handler = set_up_log()
    try:
        asyncio.run(service.serve())
    except StoreError as error:
        raise StartError(str(error)) from None
    finally:
        handler.drain(LAST_LINES_SECONDS)
