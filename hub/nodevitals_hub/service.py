"""The hub's process: starts its parts, restarts a part that fails, ends at SIGTERM.

In: settings and addresses. The parts are those of parts.py, and the web server.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from nodevitals.document import DocumentError, Problem, add_problems, convert_parts, read_file
from nodevitals.document.local import missing
from nodevitals.document.settings import SettingsDocument
from nodevitals.errors import ProbeError
from nodevitals_hub import stopping
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.checks.runners import Runner
from nodevitals_hub.context import Hub
from nodevitals_hub.launch.kind_runner import KindRunner
from nodevitals_hub.notify.channels import channel_check
from nodevitals_hub.parts import Parts, Work
from nodevitals_hub.repair import repair_plan, startable
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.store.check_store import Store, StoreError
from nodevitals_hub.web.server import WebServer

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 60.0

default_extras: Sequence[Callable[[Hub], Awaitable[None]]] = ()
"""Further tasks that run beside the parts."""

log = logging.getLogger(__name__)


def load(path: str | None) -> HubSettings:
    """The settings in a file, or the defaults. Raises DocumentError with every problem."""
    return _read(path)[0]


def check(path: str | None) -> tuple[HubSettings, list[Problem]]:
    """The settings of `load`, and warnings: of files and programs that are not here, and of repairs
    that may not start. A hub does not look for files at its start: one may be on a file system that
    does not answer.
    """
    settings, document = _read(path)
    found = list(missing(document.values(), HubSettings))
    if settings.out_of_service is not None:
        found += startable.warnings(settings.out_of_service)
    return settings, document.placed(found)


def _read(path: str | None) -> tuple[HubSettings, SettingsDocument]:
    document = SettingsDocument(b"" if path is None else read_file(path))
    problems: list[Problem] = []
    settings: HubSettings | None = convert_parts(document.values(), HubSettings, "", problems)
    if settings is not None:
        for found in settings.checks():
            add_problems(found, problems)
        add_problems(_file_problems(settings), problems)
    error = document.error(problems)
    if error is not None or settings is None:
        raise error or DocumentError(problems)
    return settings, document


def _file_problems(settings: HubSettings) -> Iterator[Problem]:
    """What is wrong in the files that the settings name."""
    yield from channel_check.problems(settings.notify.channels)
    if settings.out_of_service is not None:
        repairs = settings.out_of_service.repairs
        yield from repair_plan.file_problems(repairs, "out_of_service.repairs")
        yield from startable.problems(settings.out_of_service)


def default_runner(settings: HubSettings, members: Members) -> Runner:
    """The runner of checks. Raises ProbeError for unusable certificates or token."""
    return KindRunner(settings, members)


class Service:
    """One hub."""

    def __init__(
        self,
        config: str | None,
        listen: str,
        web_config: str | None,
        runner: Runner | None = None,
        listening: socket.socket | None = None,
    ) -> None:
        """Open the store. Raises DocumentError, ProbeError and StoreError."""
        self._config, self._listen, self._web_config = config, listen, web_config
        self._listening = listening
        self._settings = load(config)
        self._reloading = asyncio.Lock()
        self._members = Members()
        self._runner = runner or default_runner(self._settings, self._members)
        self._store = Store(self._settings.state_directory)

    async def serve(self) -> None:
        """Run until SIGTERM or SIGINT."""
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per request to an agent
        if self._store.lost:
            log.error("%s", self._store.lost)
        coordinator = Coordinator(self._settings, self._store, self._members, self._runner)
        hub = Hub(self._settings, self._store, self._members, coordinator)
        stop, deadline = asyncio.Event(), stopping.Deadline()
        loop = asyncio.get_running_loop()

        def end() -> None:
            deadline.start()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        reloads: set[asyncio.Task[None]] = set()  # the loop itself keeps no reference to a task

        def reload() -> None:
            task = loop.create_task(self._reload(hub))
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)
        await self._read_members(hub)
        await coordinator.start()
        parts = Parts(hub)
        web = WebServer(hub, parts.handlers(), self._listen, self._web_config, self._listening)
        works: dict[str, Work] = {
            "members": partial(self._refresh_members, hub),
            "checks": coordinator.run,
            **parts.works(),
            "nodevitals_hub.web.server": web.serve,
            **{extra.__qualname__: partial(extra, hub) for extra in default_extras},
        }
        deadline.tasks = {
            name: loop.create_task(_kept_running(name, work)) for name, work in works.items()
        }
        log.info("started")
        await stop.wait()
        log.info("stopping")
        await self._end(hub, parts.servers, deadline)

    async def _end(self, hub: Hub, servers: Servers, deadline: stopping.Deadline) -> None:
        """End the parts, then the checks, then close the files, also if some task does not end."""
        await stopping.canceled(deadline.tasks.values(), stopping.TASKS_SECONDS)
        deadline.stage = "the checks"
        await hub.checks.stop()
        deadline.stage = "the databases"
        await servers.close()
        await hub.database.close()
        await self._store.close()
        deadline.stage = ""
        if any(not task.done() for task in deadline.tasks.values()):
            deadline.exit()

    async def _reload(self, hub: Hub) -> None:
        """Read the settings again, one reload at a time: Apprise takes a second for channels."""
        async with self._reloading:
            try:
                settings = await asyncio.to_thread(load, self._config)
            except DocumentError as error:
                for problem in error.problems:
                    log.error("reload: %s", problem.within(str(self._config)))
                return
            hub.settings = hub.checks.settings = settings
            log.info("reload: done")

    async def _read_members(self, hub: Hub) -> None:
        before = hub.members.problems
        await asyncio.to_thread(hub.members.read, hub.settings.nodes)
        for problem in set(hub.members.problems) - set(before):
            log.warning("%s", problem)

    async def _refresh_members(self, hub: Hub) -> None:
        while True:
            await asyncio.sleep(hub.settings.nodes.refresh)
            await self._read_members(hub)
            try:
                await self._runner.refresh()
            except ProbeError as error:
                log.error("%s; those read before stay in use", error.message)


async def _kept_running(name: str, work: Work) -> None:
    """Run a part until it returns; restart it when it fails, while the other parts continue."""
    wait = FIRST_RETRY_SECONDS
    while True:
        try:
            await work()
            return
        except StoreError as error:  # the disk or the file: a traceback has no more
            log.error("%s: %s; next start in %g s", name, error, wait)
        except Exception:
            log.exception("%s failed; next start in %g s", name, wait)
        await asyncio.sleep(wait)
        wait = min(2 * wait, LAST_RETRY_SECONDS)
