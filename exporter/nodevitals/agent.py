"""The running exporter: it connects the configuration, the supervisor and the web server.

The supervisor runs in the main thread, where signals arrive; the web server has its own threads and
reads only the published snapshot, a few numbers, and the result of a reload that it requested.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import queue
import selectors
import signal
import threading
import time
from collections.abc import Iterable

from nodevitals import __version__, catalogue, probes
from nodevitals.config import Config
from nodevitals.document import DocumentError
from nodevitals.engine.configuration import plan_targets
from nodevitals.engine.loader import LOAD_SECONDS
from nodevitals.engine.protocol import Files, Loaded
from nodevitals.engine.supervisor import Supervisor
from nodevitals.exposition import Snapshot, Source, Variant, escape_label, render_samples
from nodevitals.linux.host import Clock, Host, node_name
from nodevitals.logs import QueuedHandler
from nodevitals.probe import Family
from nodevitals.state.history import HistoryProbe
from nodevitals.state.journal import Journal
from nodevitals.web.access import Access, access_of
from nodevitals.web.page import Overview
from nodevitals.web.server import Server
from nodevitals.wire import ProbeResult, Sample

HEALTHY_TICK_SECONDS = 10.0
# Time limit of a request to reload: a load in progress ends first.
RELOAD_SECONDS = 2 * LOAD_SECONDS + 5.0
STOP_SECONDS = 2.5
SELF_SECONDS = 5.0

log = logging.getLogger(__name__)


def new_supervisor(host: Host, clock: Clock | None = None) -> Supervisor:
    """A supervisor without targets."""
    families = catalogue.all_families()
    journal = Journal(families, host.boot_id(), catalogue.state_types())
    return Supervisor(host, Snapshot(families), journal, clock or Clock())


class LoadError(Exception):
    """The configuration cannot be used; one line per problem. `invalid`: its content is wrong."""

    def __init__(self, text: str, *, invalid: bool) -> None:
        super().__init__(text)
        self.invalid = invalid


class Agent:
    """`nodevitals serve`, from start to SIGTERM."""

    def __init__(self, host: Host, files: Files) -> None:
        self._files = files
        self._first = Loaded()
        """What `load` has loaded, for `serve`."""
        self._labels: dict[str, str] = {}
        self._supervisor = new_supervisor(host)
        self._supervisor.keep_readings = False
        self._reloads: queue.Queue[queue.Queue[str]] = queue.Queue()
        self._hangup = False
        self._stopping = False
        self._loaded_at = time.time()
        self._reload_problems: tuple[str, ...] = ()
        """What was wrong with the last configuration that was loaded; nothing: it is in use."""
        self._started_at = time.time()
        self._started_monotonic = time.monotonic()
        self._self_due = 0.0
        self._log_handler: QueuedHandler | None = None
        self._server: Server | None = None
        # Wakes the main thread for signals, and for requests of the web server's threads.
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def scrape(self, variant: Variant) -> bytes:
        """The body of a scrape (any thread)."""
        return self._supervisor.snapshot.scrape(variant, time.monotonic())

    def probe_names(self) -> frozenset[str]:
        """What collect[] may name (any thread)."""
        return frozenset({*probes.registered(), HistoryProbe.name})

    def health(self) -> str:
        """'' while the supervisor's loop ticks (any thread)."""
        age = time.monotonic() - self._supervisor.last_tick
        return (
            f"the supervisor has not ticked for {age:.0f} s" if age > HEALTHY_TICK_SECONDS else ""
        )

    def readiness(self) -> str:
        """'' once every target has ended a run (any thread)."""
        waiting = self._supervisor.waiting
        return f"no result yet from {', '.join(waiting)}" if waiting else ""

    def overview(self) -> Overview:
        """What the page at / shows (any thread)."""
        return Overview(
            node=node_name(),
            version=__version__,
            started_at=self._started_monotonic,
            loaded_at=self._loaded_at,
            reload_problems=self._reload_problems,
            health=self.health(),
            targets=self._supervisor.views,
        )

    def reload(self) -> str:
        """Make the main thread reload. Returns '' or the problems (any thread)."""
        answer: queue.Queue[str] = queue.Queue(1)
        self._reloads.put(answer)
        with contextlib.suppress(BlockingIOError):  # full: the main thread wakes anyway
            os.write(self._wake_write, b"\0")
        try:
            return answer.get(timeout=RELOAD_SECONDS)
        except queue.Empty:
            return f"no result within {RELOAD_SECONDS:g} s"

    def start_fork_server(self) -> None:
        """Start the fork server, before there is any thread, and before secrets are read that
        workers must not have.
        """
        self._supervisor.processes.start(fork=threading.active_count() == 1)

    def load(self) -> Access | None:
        """Load both files for the first time; None where SIGTERM came first. Raises LoadError."""
        supervisor = self._supervisor
        supervisor.selector.register(
            self._wake_read, selectors.EVENT_READ, lambda: _drain(self._wake_read)
        )
        loaded = supervisor.load(self._files, lambda: self._stopping)
        if loaded is None:
            return None
        if loaded.errors:
            raise LoadError("\n".join(loaded.errors), invalid=loaded.invalid)
        self._first = loaded
        return access_of(loaded.web)

    def serve(self, server: Server, log_handler: QueuedHandler) -> None:
        """Run until SIGTERM or SIGINT; then end everything that was started."""
        self._log_handler, self._server = log_handler, server
        supervisor = self._supervisor
        first, self._first = self._first, Loaded()
        self._labels = first.labels
        if first.state_directory is None:
            supervisor.journal.requeue()
        supervisor.apply(first.targets)
        self._show_self()
        supervisor.step()
        server.start()
        log.info("listening on %s", server.address_text())
        while not self._stopping:
            supervisor.step()
            self._handle_reloads()
            if time.monotonic() >= self._self_due:
                self._show_self()
        self._stop()

    def handle_signals(self) -> None:
        """Install the signal handlers: SIGTERM and SIGINT end `serve`, SIGHUP reloads. Call this
        before the port is open: a client that connects may send a signal.
        """
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hangup)

    def _on_stop(self, *_: object) -> None:
        self._stopping = True

    def _on_hangup(self, *_: object) -> None:
        self._hangup = True

    def _handle_reloads(self) -> None:
        """Start a requested load. During a load, start another one afterwards: the files may have
        changed.
        """
        loader = self._supervisor.loader
        if loader.busy or (self._reloads.empty() and not self._hangup):
            return
        self._hangup = False
        waiting = []
        while not self._reloads.empty():
            waiting.append(self._reloads.get_nowait())

        def done(loaded: Loaded) -> None:
            problem = self._apply(loaded)
            for answer in waiting:
                answer.put(problem)

        loader.start(self._files, done)

    def _apply(self, loaded: Loaded) -> str:
        """Use a loaded configuration; one with errors changes nothing. Returns '' or the errors."""
        errors = loaded.errors
        try:
            access = access_of(loaded.web)
            for spec in loaded.targets:
                catalogue.probe_class(spec.probe)
        except DocumentError as error:
            errors = tuple(problem.within(self._files.web or "") for problem in error.problems)
        except KeyError as error:  # installed since the agent was started
            errors = (f"probe {error} is new: restart the agent to use it",)
        if errors:
            self._reload_problems = errors
            self._show_self()
            for line in errors:
                log.error("reload: %s", line)
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._loaded_at))
            log.error("reload: nothing is changed; still the configuration of %s", since)
            return "\n".join(errors)
        self._labels = loaded.labels
        if self._server is not None:
            self._server.replace_access(access)
        self._supervisor.apply(loaded.targets)
        self._reload_problems, self._loaded_at = (), time.time()
        self._show_self()
        log.info("reload: done")
        return ""

    def _show_self(self) -> None:
        """Expose the agent's own families."""
        self._self_due = time.monotonic() + SELF_SECONDS
        families = self._supervisor.snapshot.families
        log_handler, server = self._log_handler, self._server
        usage, children = os.times(), self._supervisor.processes
        samples = [
            Sample(catalogue.BUILD_INFO.name, (__version__, platform.python_version()), 1),
            Sample(catalogue.CONFIG_RELOAD_SUCCESSFUL.name, (), not self._reload_problems),
            Sample(catalogue.CONFIG_RELOAD_TIMESTAMP.name, (), self._loaded_at),
            Sample(catalogue.FORK_SERVER_RESTARTS.name, (), children.restarts),
            Sample(catalogue.LOG_DROPPED.name, (), log_handler.dropped if log_handler else 0),
            Sample(catalogue.HISTORY_DROPPED.name, (), self._supervisor.journal.dropped_rows),
            Sample(catalogue.PROCESS_CPU.name, (), usage.user + usage.system),
            Sample(catalogue.PROCESS_START.name, (), self._started_at),
        ]
        resident_bytes = _resident_bytes()
        if resident_bytes is not None:
            samples.append(Sample(catalogue.PROCESS_RESIDENT.name, (), resident_bytes))
        for reason, count in (server.evicted if server else {}).items():
            samples.append(Sample(catalogue.WEB_EVICTED.name, (reason,), count))
        lines = render_samples(families, samples)
        lines[catalogue.NODE_INFO.name] = _node_info(self._labels)
        self._supervisor.snapshot.put(Source("agent", "", "self"), lines)

    def _stop(self) -> None:
        """Close the port, write what must not be lost, and end every process, within STOP_SECONDS
        and the time that the kernel needs.
        """
        log.info("stopping")
        if self._server is not None:
            # shutdown() waits for the accept loop, at most some seconds: not in this thread.
            threading.Thread(target=self._server.shutdown, daemon=True).start()
            self._server.socket.close()
        self._supervisor.flush()
        self._supervisor.processes.stop()
        self._supervisor.processes.wait(STOP_SECONDS)
        if self._log_handler is not None:
            self._log_handler.drain(0.2)


def _node_info(labels: dict[str, str]) -> bytes:
    family: Family = catalogue.NODE_INFO
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in labels.items() if value)
    return f"{family.name}{{{pairs}}} 1\n".encode()


def _resident_bytes() -> int | None:
    """The agent's resident memory; None where it cannot be read, as without a free descriptor."""
    try:
        with open("/proc/self/statm", encoding="ascii") as handle:
            return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _drain(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 4096)


def run_once(host: Host, config: Config, name: str) -> tuple[str, dict[str, ProbeResult]]:
    """Run each target of one probe once. Returns the exposition text, and each last result."""
    text, results = run_probes(host, config, [name])
    return text, {target: result for (_, target), result in results.items()}


def run_probes(
    host: Host, config: Config, names: Iterable[str], seconds: float = math.inf
) -> tuple[str, dict[tuple[str, str], ProbeResult]]:
    """Run each target of these probes once, for at most `seconds`. Returns the exposition text, and
    the results of the targets that have ended by then, by probe and target.
    """
    supervisor = new_supervisor(host)
    supervisor.journal.requeue()
    supervisor.processes.start()
    supervisor.apply(plan_targets(config, only=names))
    end = time.monotonic() + seconds
    while supervisor.unfinished() and time.monotonic() < end:
        supervisor.step(end)
    supervisor.snapshot.publish(time.monotonic())
    text = supervisor.snapshot.scrape(Variant(openmetrics=False, compressed=False), 0.0).decode()
    results = {
        key: target.last for key, target in supervisor.targets.items() if target.last is not None
    }
    supervisor.processes.stop()
    supervisor.processes.wait(STOP_SECONDS)
    return text, results
