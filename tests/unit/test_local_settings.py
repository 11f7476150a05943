"""`check-config` warns of files and programs that are not here; `--strict` refuses them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from nodevitals.commands.cli import main
from nodevitals.config import Config
from nodevitals.document.local import Local, LocalFile, missing
from nodevitals.probes import registered
from nodevitals_hub.settings.hub import HubSettings

# Names of settings that name a file, a folder or a program, and those that do not.
NAMES = ("file", "file_sd", "files", "folder", "ibnetdiscover", "ipmitool", "library", "socket")
ENDS = ("_file", "_directory", "_tool", "_smi", "ctl", "_command")
ELSEWHERE = {
    "job_file",  # its absence means something
    "maintenance_file",
    "manifest_file",  # an error, with what is wrong in it
    "state_directory",  # is made
    "MountTarget.file",  # may hang: the probe looks
    "MaintenanceSettings.file",  # exists during maintenance only
}


def missing_of(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `check-config` warns of; with --strict, the same are errors."""
    file = tmp_path / "c.yaml"
    file.write_text(text)
    assert main(["check-config", str(file)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert main(["check-config", "--strict", str(file)]) == (1 if lines else 0)
    errors = capsys.readouterr().err.splitlines()
    assert lines == [f"warning: {line}" for line in errors]
    return [error.removeprefix(f"{file}:") for error in errors]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "scripts: {folder: HERE/scripts}",
            (
                "2:13: probes.scripts.folder: 'HERE/scripts' is not here: No such file or "
                "directory: check the path, or make the folder"
            ),
        ),
        (
            "profile: {file: HERE}",
            "2:13: probes.profile.file: 'HERE' is a folder here: name a file",
        ),
        (
            "scripts: {textfiles: [{path: HERE/c.yaml}]}",
            (
                "2:26: probes.scripts.textfiles[0].path: 'HERE/c.yaml' is no folder here: "
                "name a folder"
            ),
        ),
        (
            "switches: {lldpctl: no-such-program}",
            (
                "2:14: probes.switches.lldpctl: 'no-such-program' is no program on PATH here: "
                "install it, or check the path"
            ),
        ),
        (
            'peers: {file_sd: ["HERE/*.json"]}',
            (
                "2:21: probes.peers.file_sd[0]: no file is named like 'HERE/*.json' here: "
                "check the path"
            ),
        ),
        (
            "peers: {file_sd: [{files: [HERE/a.json], port: 22}]}",
            (
                "2:30: probes.peers.file_sd[0].files[0]: 'HERE/a.json' is not here: "
                "No such file or directory: check the path, or make the file"
            ),
        ),
        ("profile: {file: /run/credentials/nodevitals.service/profile}", ""),
        ("profile: {enabled: false, file: HERE/nothing}", ""),
        ("profile: {file: HERE/c.yaml}", ""),
        ("switches: {lldpctl: cat}", ""),
        ("nvidia: {library: libnowhere.so.1}", ""),
        ("mounts: {targets: [{path: HERE/nothing}]}", ""),
    ],
)
def test_what_is_not_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], section: str, expected: str
) -> None:
    text = f"probes:\n  {section}\n".replace("HERE", str(tmp_path))
    wanted = [expected.replace("HERE", str(tmp_path))] if expected else []
    assert missing_of(text, tmp_path, capsys) == wanted


def fields_of(hint: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a structure and of those within, as CLASS.NAME, with their types."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        for name, kind in get_type_hints(hint, include_extras=True).items():
            yield f"{hint.__name__}.{name}", kind
            yield from fields_of(kind)
    for part in get_args(hint):
        yield from fields_of(part)


def is_marked(hint: Any) -> bool:
    return any(isinstance(part, Local) for part in get_args(hint)) or any(
        is_marked(part)
        for part in get_args(hint)
        if get_origin(hint) is not Annotated or part is get_args(hint)[0]
    )


@pytest.mark.parametrize(
    "settings", [Config, HubSettings, *(kind.Settings for kind in registered().values())]
)
def test_no_setting_that_names_something_here_is_left_out(settings: type[msgspec.Struct]) -> None:
    """A new setting with such a name is looked for as well, or stands in ELSEWHERE."""
    for field, hint in fields_of(settings):
        name = field.partition(".")[2]
        if (name in NAMES or name.endswith(ENDS)) and not {name, field} & ELSEWHERE:
            marked = is_marked(hint) or any(is_marked(kind) for _, kind in fields_of(hint))
            assert marked, f"{field} has no Local of nodevitals.document.local"


def test_a_file_that_only_root_reads_is_named() -> None:
    """To the user of the service, `stat` shows it; the service could not read it."""
    with NamedTemporaryFile() as file:  # mode 600, in a folder that everyone may search
        assert list(missing(file.name, LocalFile, "key_file")) == []
        os.seteuid(65534)
        try:
            [problem] = missing(file.name, LocalFile, "key_file")
        finally:
            os.seteuid(0)
    assert problem.message == (
        f"this user may not read {file.name!r}: run as the user of the service, or permit it"
    )
