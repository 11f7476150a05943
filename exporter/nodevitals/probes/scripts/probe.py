"""Probe `scripts`: a site's own checks, one process each, and Prometheus text files of jobs.

In: the exit status and the output of each executable of a folder; `*.prom` files of other folders.
Out: `nodevitals_scripts_*`. What another user could have changed is not run.
"""

from __future__ import annotations

import msgspec

from nodevitals.probe import Probe, ProbeError, Readings, Timing
from nodevitals.probes.scripts import families
from nodevitals.probes.scripts.program import run, started_at
from nodevitals.probes.scripts.script import (
    ScriptState,
    add_result,
    budget,
    result_of,
    still_running,
)
from nodevitals.probes.scripts.settings import (
    FolderTarget,
    ScriptSettings,
    ScriptsSettings,
    ScriptsTarget,
    ScriptTarget,
    TextfilesSettings,
)
from nodevitals.probes.scripts.textfolder import TextFolder
from nodevitals.probes.scripts.trust import (
    UntrustedError,
    list_in_time,
    list_scripts,
    trusted_path,
)

MAX_SCRIPTS = 200


class ScriptsProbe(Probe):
    """Checks of the site (Nagios plugins, nhc, any executable), and metrics that jobs write to
    files.
    """

    name = "scripts"
    families = families.metrics
    Settings = ScriptsSettings
    TargetSettings = ScriptsTarget
    State = ScriptState
    settings: ScriptsTarget
    state: ScriptState

    needs = ("folder", "textfiles")

    @classmethod
    def targets(cls, settings: ScriptsSettings) -> list[tuple[str, ScriptsTarget]]:
        """One target per script, one that compares their folder with them, and one per folder of
        text files. It lists the folder: a new script is run from the next reload on.
        """
        targets = []
        if settings.folder is not None:
            own = {script.name: script for script in settings.scripts}
            off = {name for name, script in own.items() if not script.enabled}
            listed = set(list_in_time(settings.folder)) | own.keys()
            names = tuple(sorted(listed - off)[:MAX_SCRIPTS])
            folder = FolderTarget(folder=settings.folder, run=names, off=tuple(sorted(off)))
            targets.append((settings.folder, ScriptsTarget(folder=folder)))
            for name in names:
                script = own.get(name, ScriptSettings(name=name))
                target = ScriptTarget(folder=settings.folder, script=script)
                targets.append((name, ScriptsTarget(script=target)))
        targets += [
            (textfile.path, ScriptsTarget(textfiles=textfile)) for textfile in settings.textfiles
        ]
        return targets

    @classmethod
    def target_timing(cls, own: msgspec.Struct, timing: Timing) -> Timing:
        """A script and a folder of text files may have a timing of their own."""
        assert isinstance(own, ScriptsTarget)
        timed = own.script.script if own.script is not None else own.textfiles
        return timing if timed is None else timing.changed_by(timed)

    def run(self, readings: Readings) -> None:
        """Run the script, or read the folder."""
        if self.settings.script is not None:
            self._run_script(readings, self.settings.script)
        elif self.settings.folder is not None:
            self._compare(readings, self.settings.folder)
        elif self.settings.textfiles is not None:
            self._read_textfiles(readings, self.settings.textfiles)

    def _run_script(self, readings: Readings, target: ScriptTarget) -> None:
        script = target.script
        pid = still_running(self.state, started_at)
        if pid is not None:
            text = f"{script.name}: process {pid} of an earlier run cannot be killed: not run again"
            raise ProbeError("stuck", text)
        argv = [_trusted(f"{target.folder}/{script.name}"), *script.arguments]
        ended = run(argv, *budget(self.timing.timeout_seconds), user=script.user)
        self.state.left = list(ended.left)
        add_result(
            readings, script.name, result_of(ended, script), ended.discarded_bytes, self.state
        )

    def _compare(self, readings: Readings, target: FolderTarget) -> None:
        path = target.folder
        try:
            executable, other, refused = list_scripts(path)
        except OSError as error:
            raise ProbeError("folder", f"{path}: {error.strerror}: check the path") from None
        present, known = set(executable) - set(target.off), set(target.run)
        new = sorted(present - known)
        counts = {
            "run": len(present & known),
            "new": len(new),
            "removed": len(known - present - set(other)),
            "not_executable": len(set(other) - set(target.off)),
            "refused": refused,
        }
        for state, count in counts.items():
            readings.add(families.FILES, count, path, state)
        detail = f"new: {', '.join(new)}: reload the agent to run them" if new else ""
        readings.condition(path, "changed" if new else "loaded", detail)
        _trusted(path)

    def _read_textfiles(self, readings: Readings, settings: TextfilesSettings) -> None:
        problems = TextFolder(settings, self.host.root(settings.path), readings).read()
        state = "unreadable" if problems else "read"
        readings.condition(settings.path, state, "; ".join(problems[:4]))


def _trusted(path: str) -> str:
    try:
        return trusted_path(path)
    except UntrustedError as error:
        raise ProbeError("untrusted", str(error)) from None
    except FileNotFoundError as error:
        text = f"{path}: {error.strerror}: reload the agent if it was removed"
        raise ProbeError("missing", text) from None
    except OSError as error:
        raise ProbeError("untrusted", f"{path}: {error.strerror}") from None
