"""The frequency governors of the processors while tests run: set before the first, restored after
the last, also by the next start or test where both tool and agent were killed.

In: sysfs. Out: the governors, and a file with those from before. That is below /run, as the
governors themselves are gone after a reboot. Checks over ssh use the same file, so that a check
never saves governors that another one has set.
"""

from __future__ import annotations

import os
import threading

from nodevitals.linux import tool
from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import list_names, read_text
from nodevitals.probe import ProbeError

CPUS = "/sys/devices/system/cpu"
# Only root may write there, because root restores the governors from the file.
SAVED = "/run/nodevitals-governors"
SCRIPT_SECONDS = 3.0
MAX_CHARACTERS = 64
# Both scripts need nothing but a shell: the agent's image has no other program. A file without its
# last line is of a script that was killed before it changed anything.
_READ = """\
saved=$2; cd "$1" || exit 1
last=; [ -e "$saved" ] && while read -r line; do last=$line; done <"$saved"
"""
# Writing what is there shows whether it can be written.
SET = f"""\
umask 077
{_READ}
set -- cpu[0-9]*/cpufreq/scaling_governor
[ -e "$1" ] || exit 0
read -r governor <"$1" && echo "$governor" >"$1" || exit 1
[ "$last" = end ] || {{
  for file; do read -r governor <"$file" && echo "$file $governor"; done; echo end
}} >"$saved" || exit 1
for file; do echo performance >"$file"; done
"""
"""Script that saves the governors, unless they are saved, and sets `performance`. Arguments: CPUS,
SAVED."""
RESTORE = f"""\
{_READ}
failed=; [ "$last" = end ] && while read -r file governor; do
  [ "$file" = end ] || [ ! -e "$file" ] || echo "$governor" >"$file" || failed=1
done <"$saved"
[ -z "$failed" ] || exit 1
[ ! -e "$saved" ] || rm -f "$saved" 2>/dev/null || : >"$saved"
"""
"""Script that restores the governors that were saved; they stay saved where one cannot be written.
Arguments: CPUS, SAVED."""


def argv(script: str, cpus: str = CPUS) -> list[str]:
    """The command line of a script."""
    return ["sh", "-c", script, "sh", cpus, SAVED]


class Governors:
    """The governors of this node. `wanted` is `performance`, or `unchanged`."""

    def __init__(self, host: Host, wanted: str = "unchanged") -> None:
        self._cpus = host.sys("devices/system/cpu")
        self._wanted = wanted
        self._held = False
        self._closed = False
        self._lock = threading.Lock()
        self.problem = ""
        """Why they could not be set or restored, in one line."""

    def hold(self) -> str:
        """Set them if that is wanted. Returns the governors, '' where they are unknown."""
        with self._lock:
            if self._wanted != "unchanged" and not self._held and not self._closed:
                self._held = True
                self._run(SET)
        return self._current()

    def release(self) -> None:
        """Restore them if they are held."""
        with self._lock:
            if self._held:
                self._held = False
                self._run(RESTORE)

    def restore(self) -> None:
        """Restore what an agent that was killed has saved."""
        if os.path.exists(SAVED):
            self._run(RESTORE)

    def close(self) -> None:
        """Restore them if they are held; later tests set none."""
        self._closed = True
        self.release()

    def _run(self, script: str) -> None:
        problem = ""
        try:
            done = tool.run(argv(script, str(self._cpus)), SCRIPT_SECONDS)
        except ProbeError as error:
            problem = error.message
        else:
            if done.status != 0:
                line = next(iter(done.text.splitlines()), f"status {done.status}")
                act = "set" if script == SET else "restored"
                problem = f"CPU governors cannot be {act}: {line}"
        if problem or script == SET:
            self.problem = problem

    def _current(self) -> str:
        found = {
            text
            for name in list_names(self._cpus)
            if (text := read_text(self._cpus / name / "cpufreq/scaling_governor"))
        }
        return ",".join(sorted(found))[:MAX_CHARACTERS]
