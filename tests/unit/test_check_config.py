"""`check-config` on wrong files: each message has the place, the key and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import pytest
import trustme

from nodevitals.commands.cli import main
from nodevitals.commands.rules.site.values import Values
from nodevitals.config import Config
from nodevitals.document import Problem, convert, translated
from nodevitals.probes import registered
from nodevitals.web_config import WebSettings

ROOT = Path(__file__).parents[1]
# A verb that says what to do.
REMEDY = re.compile(
    r"\b(begin|check|choose|close|did you mean|indent|make|name|none of|put|remove|run|save|set|use"
    r"|write)\b"
)


class Wrong(NamedTuple):
    """A wrong file: what is wrong, its text, and what is printed of it after the file's name."""

    what: str
    text: str | bytes
    printed: str


def table(name: str) -> tuple[Wrong, ...]:
    """The rows of a file in tests/data/check-config; it says how it is written."""
    _, *records = (ROOT / "data/check-config" / name).read_text().split("\n\n# ")
    rows = []
    for record in records:
        what, _, rest = record.partition("\n")
        text, _, printed = rest.partition(">>> ")
        rows.append(Wrong(what, text, printed.rstrip().replace("\n>>> ", "\n")))
    return tuple(rows)


CONFIGURATION = (
    *table("configuration.txt"),
    Wrong(
        "a byte order mark and CRLF",
        b"\xef\xbb\xbfdefaults:\r\n  interval: 5\r\n",
        "2:3: defaults.interval: 5 is not a duration: write it like 500ms, 30s, 5m or 1h",
    ),
    Wrong(
        "a binary file",
        b"labels:\n  rack: \x7fELF\x00\x01\n",
        "2:9: not valid YAML: control characters are not allowed: "
        "save the file as plain UTF-8 text",
    ),
    Wrong(
        "Latin-1",
        b"labels:\n  rack: H\xf6rsaal\n",
        "2:11: not valid YAML: invalid trailing UTF-8 octet: save the file as plain UTF-8 text",
    ),
)
WEB = table("web.txt")


def test_the_tables_are_read_whole() -> None:
    for name, rows in (("configuration.txt", CONFIGURATION), ("web.txt", WEB)):
        text = (ROOT / "data/check-config" / name).read_text()
        printed = sum(row.printed.count("\n") + 1 for row in rows if isinstance(row.text, str))
        assert printed == text.count("\n>>> ")
        assert all(row.text for row in rows)


def names(rows: tuple[Wrong, ...]) -> list[str]:
    return [row.what for row in rows]


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The status, and the lines on stderr."""
    status = main(["check-config", *arguments])
    return status, capsys.readouterr().err


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def expected(file: Path, printed: str) -> str:
    printed = printed.replace("{probes}", ", ".join(registered()))
    return "".join(f"{file}:{line}\n" for line in printed.split("\n"))


@pytest.mark.parametrize("wrong", CONFIGURATION, ids=names(CONFIGURATION))
def test_a_wrong_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: Wrong
) -> None:
    file = write(tmp_path / "c.yaml", wrong.text)
    assert check(capsys, str(file)) == (1, expected(file, wrong.printed))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate with its key, and the key of another one."""
    folder = tmp_path_factory.mktemp("web")
    authority = trustme.CA()
    one, other = authority.issue_cert("a.test"), authority.issue_cert("b.test")
    write(folder / "cert.pem", one.cert_chain_pems[0].bytes())
    write(folder / "key.pem", one.private_key_pem.bytes())
    write(folder / "other.pem", other.private_key_pem.bytes())
    return folder


@pytest.mark.parametrize("wrong", WEB, ids=names(WEB))
def test_a_wrong_web_configuration(
    folder: Path, capsys: pytest.CaptureFixture[str], wrong: Wrong
) -> None:
    file = write(folder / "web.yaml", wrong.text)
    assert check(capsys, "--web.config.file", str(file)) == (1, expected(file, wrong.printed))


@pytest.mark.parametrize("wrong", [*CONFIGURATION, *WEB], ids=names((*CONFIGURATION, *WEB)))
def test_each_message_has_line_column_and_remedy(wrong: Wrong) -> None:
    """And no word of the library's, of Python's or of OpenSSL's."""
    for line in wrong.printed.split("\n"):
        assert re.match(r"[0-9]+:[0-9]+: ", line)
        assert REMEDY.search(line)
        assert not re.search(r"Expected|got `|\bint\b|\bstr\b|None|_ssl", line)


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("nowhere.yaml", "cannot be read: No such file or directory: check the path"),
        (".", "not a regular file: name a file"),
        ("nul\0", "cannot be read: embedded null byte: check the path"),
    ],
)
def test_what_cannot_be_read_is_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, printed: str
) -> None:
    file = str(tmp_path) if name == "." else f"{tmp_path}/{name}"
    for option in ([], ["--web.config.file"]):
        assert check(capsys, *option, file) == (2, f"{file}: {printed}\n")


def test_what_was_found_counts_where_another_file_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "c.yaml", "probe: {}\n")
    status, printed = check(capsys, str(file), "--web.config.file", f"{tmp_path}/nowhere")
    assert (status, printed.count("\n")) == (1, 2)


@pytest.mark.parametrize("text", ["", "# nothing\n", "probes:\n  node: {interval: 20s}\n"])
def test_a_good_file_prints_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert check(capsys, str(write(tmp_path / "c.yaml", text))) == (0, "")


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "probes:\n  node:\n    interval: 5s\n",
            (
                "3:5: probes.node.interval: shorter than the inherited timeout of 10s, "
                "so a run may take 5s: set probes.node.timeout to say so"
            ),
        ),
        (
            "probes:\n  mounts:\n    targets:\n      - {path: /a, interval: 5s}\n",
            (
                "4:20: probes.mounts.targets[0].interval: shorter than the inherited timeout of "
                "10s, so a run may take 5s: set probes.mounts.targets[0].timeout to say so"
            ),
        ),
        (
            "defaults: {interval: 5s}\n",
            (
                "1:1: defaults.timeout: 10s is over defaults.interval, so probes use 5s: "
                "set at most that"
            ),
        ),
    ],
)
def test_a_timeout_that_the_interval_shortens_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, warning: str
) -> None:
    file = write(tmp_path / "c.yaml", text)
    assert check(capsys, str(file)) == (0, f"warning: {file}:{warning}\n")


def types_in(hint: Any) -> Iterator[Any]:
    """A type of a setting, and those of its parts."""
    yield hint
    for part in get_args(hint):
        if get_origin(hint) not in (Annotated, Literal) and part is not Ellipsis:
            yield from types_in(part)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        for field in get_type_hints(hint, include_extras=True).values():
            yield from types_in(field)


SETTINGS = [Config, WebSettings, Values, *(kind.Settings for kind in registered().values())]
VALUES = (None, True, 7, 1.5, -1, 10**30, "text", "8", [1], {"a": 1})


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_type_of_every_setting_has_words(settings: type[msgspec.Struct]) -> None:
    """No message of the library, whose words are for programmers, reaches a person."""
    for hint in types_in(settings):
        for value in VALUES:
            problems: list[Problem] = []
            convert(value, hint, "key", problems)
            for problem in problems:
                assert not re.search(r"Expected|got `|\bint\b|\bstr\b|None", problem.message), hint
                assert REMEDY.search(problem.message), problem


def test_a_library_message_in_words() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert([{"a": {}}], list[dict[str, int | None]])
    assert translated(caught.value) == "[0][...]: Expected a whole number or nothing, got a mapping"
