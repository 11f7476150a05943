"""The whole command line: helps, statuses, suggestions, completion, colours; of every command."""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from nodevitals.commands.cli import COMMANDS, GROUPS, Parser, main, parser_of
from nodevitals.commands.generated.command_line import commands_page, leaves
from nodevitals.commands.terminal import printable
from testbed.node import ROOT, environment, run

LEAVES = {parser.prog: parser for parser in leaves(parser_of(()))}
COMPLETION = ROOT / "exporter/packaging/completions/nodevitals.bash"
# Words of a help that says what holds where an option is not given.
DEFAULT = re.compile(r"\bdefault|\bneeded\b")
# Their statuses are tested where they are.
ELSEWHERE = {"nodevitals init", "nodevitals doctor", "nodevitals drill", "nodevitals fast"}


def parsers(parser: Parser) -> Iterator[Parser]:
    yield parser
    below = parser.subcommands()
    for one in below.choices.values() if below else ():
        yield from parsers(one)


ALL = {parser.prog: parser for parser in parsers(parser_of(()))}


@pytest.mark.parametrize("parser", ALL.values(), ids=ALL)
def test_every_argument_has_a_help_and_every_command_a_description(parser: Parser) -> None:
    assert parser.description
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        name = action.option_strings or action.dest
        assert action.help, name
        takes_a_value = bool(action.option_strings) and action.nargs != 0
        chooses = parser.prog.startswith("nodevitals fabric") and action.dest in ("nodes", "pool")
        given_for_another = "for --render" in action.help or "such as" in action.help
        if takes_a_value and not chooses and not given_for_another:
            assert DEFAULT.search(action.help), f"{name}: {action.help}"


def test_every_command_is_in_a_group_of_the_help() -> None:
    text = parser_of(()).format_help()
    for name in COMMANDS:
        assert len(re.findall(rf"^    {name} ", text, re.MULTILINE)) == 1, name
    assert "other:" not in text
    assert len([line for line in text.splitlines() if line in {f"{g}:" for g in GROUPS}]) == 3


class Case(NamedTuple):
    """Arguments, and the status with which they end."""

    arguments: str
    status: int


GOOD = "defaults: {interval: 20s}\n"
RULES = "groups: [{name: a, rules: [{record: 'a:b', expr: nodevitals_probe_success}]}]\n"
CASES = {
    "serve": [
        Case("--config.file {wrong}", 1),
        Case("--config.file {none}", 2),
        Case("--web.telemetry-path /", 2),
        Case("--web.listen-address nonsense", 2),
    ],
    "hub": [
        Case("--config.file {wrong}", 1),
        Case("--config.file {none}", 2),
        Case("--config.file {hub}", 2),
        Case("", 2),
    ],
    "probe": [
        Case("node", 0),
        Case("mounts", 0),
        Case("mounts --config.file {failing}", 1),
        Case("node --config.file {wrong}", 1),
        Case("node --config.file {none}", 2),
        Case("nodde", 2),
    ],
    "check-config": [Case("{good}", 0), Case("{wrong}", 1), Case("{none}", 2), Case("", 2)],
    "metrics": [Case("--format json", 0), Case("--format yaml", 2)],
    "completion": [Case("bash", 0), Case("fish", 2)],
    "history": [
        Case("--config.file {wrong}", 1),
        Case("--state-directory {none}", 2),
        Case("forget X --state-directory {none}", 2),
        Case("--since soon --state-directory {folder}", 2),
    ],
    "maintenance": [
        Case("show --config.file {planned}", 0),
        Case("show --config.file {wrong}", 1),
        Case("end --for 2h", 2),
    ],
    "preflight": [
        Case("--url http://127.0.0.1:9", 2),
        Case("--url nonsense", 2),
        Case("--deep", 2),
        Case("--nodes=--", 2),
    ],
    "selfcheck": [
        Case("--kind dcgm --path.procfs {none}", 2),
        Case("--config.file {wrong}", 1),
        Case("--config.file {none}", 2),
        Case("--time-limit soon", 2),
    ],
    "profile show": [Case("--url http://127.0.0.1:9", 2)],
    "profile learn": [Case("--name x --url http://127.0.0.1:9", 2), Case("", 2)],
    "profile diff": [Case("{none} {none}", 2), Case("{profile} {profile}", 2)],
    "profile check": [Case("{profile}", 0), Case("{wrong}", 1), Case("{none}", 2)],
    "profile facts": [Case("", 0), Case("x", 2)],
    "fabric parse": [Case("iperf3 {good}", 1), Case("iperf3 {none}", 2)],
    "fabric plan": [
        Case("--config.file {good}", 0),
        Case("--config.file {wrong}", 1),
        Case("--config.file {good} --node x", 2),
    ],
    "fabric check": [Case("--nodes a", 2), Case("--pool x --config.file {wrong} --device d", 1)],
    "fabric collective": [Case("--nodes a", 2), Case("--pool x --config.file {wrong}", 1)],
    "rules check": [
        Case("{rules} --promtool true", 0),
        Case("{rules} --strict --promtool true", 1),
        Case("{none}", 2),
    ],
    "rules render": [
        Case("--example", 0),
        Case("--output {out} --values {wrong}", 1),
        Case("--output {out} --values {none}", 2),
        Case("", 2),
    ],
    "rules import": [Case("{none} --output {out}", 2)],
    "rules backtest": [
        Case("--prometheus http://127.0.0.1:9 --rules {none}", 2),
        Case("--prometheus http://127.0.0.1:9 --rules {broken}", 1),
    ],
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("statuses")
    texts = {
        "good": GOOD,
        "wrong": "probe: {}\n",
        "failing": "probes: {mounts: {targets: [{path: /nowhere}]}}\n",
        "planned": f"probes: {{maintenance: {{file: {folder}/maintenance}}}}\n",
        "hub": "{state_directory: /proc/nowhere}\n",
        "profile": "name: x\nexpect: {cpu.online: 8}\n",
        "rules/a.yaml": RULES,
        "broken/a.yaml": "groups: {}\n",
    }
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    names = {"none": folder / "nowhere", "out": folder / "out", "folder": folder}
    return names | {name.partition("/")[0]: folder / name.partition("/")[0] for name in texts}


@pytest.mark.parametrize(
    ("command", "case"),
    [(command, case) for command, cases in CASES.items() for case in cases],
    ids=lambda value: value if isinstance(value, str) else value.arguments,
)
def test_exit_statuses(places: dict[str, Path], command: str, case: Case) -> None:
    """0: good, 1: found something wrong, 2: could not tell; an error says what, without a trace."""
    arguments = case.arguments.format(**places).split()
    done = run(*command.split(), *arguments)
    assert done.returncode == case.status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr or done.stdout


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        ("mounts", "no targets: set probes.mounts.targets"),
        ("peers", "no targets: set probes.peers.targets or probes.peers.file_sd or "),
        ("fabric", "not enabled: set probes.fabric.enabled to true"),
    ],
)
def test_a_probe_without_targets_names_the_key(probe: str, reason: str) -> None:
    done = run("probe", probe)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"{probe}: {reason}")
    assert done.stderr.count("\n") == 1


def test_a_probe_as_table_json_and_exposition(places: dict[str, Path]) -> None:
    table = run("probe", "maintenance", "--describe").stdout.splitlines()
    assert table[0].split() == ["METRIC", "VALUE", "HELP"]
    assert table[1].split()[:3] == ["node_maintenance", "no", "Whether"]
    assert table[-1].split()[:2] == ["maintenance", "ok"]
    found = json.loads(run("probe", "maintenance", "--json").stdout)
    assert {"metric": "nodevitals_node_maintenance", "labels": {}, "value": 0.0} in found["samples"]
    assert [one["outcome"] for one in found["targets"]] == ["ok"]
    raw = run("probe", "maintenance", "--raw").stdout
    assert "\nnodevitals_node_maintenance 0\n" in raw
    failed = run("probe", "mounts", "--config.file", str(places["failing"]))
    assert failed.stdout.splitlines()[-1].split()[:2] == ["/nowhere", "error"]
    assert failed.stderr.startswith("mounts /nowhere: missing: ")


def test_every_command_has_its_statuses_tested() -> None:
    assert {f"nodevitals {name}" for name in CASES} >= set(LEAVES) - ELSEWHERE


@pytest.mark.parametrize("prog", LEAVES)
def test_an_unknown_option_is_status_2_with_the_usage_of_its_command(
    prog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the one that was meant, of every option of every command."""
    for action in LEAVES[prog]._actions:
        for option in action.option_strings:
            if len(option) < 6:
                continue
            with pytest.raises(SystemExit) as ended:
                main([*prog.split()[1:], f"{option}x"])
            assert ended.value.code == 2
            printed = capsys.readouterr().err
            assert printed.startswith(f"usage: {prog} ")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["prob"], "; did you mean probe?"),
        (["rules", "chek"], "; did you mean check?"),
        (["serve", "--web.telemtry-path=/x"], "; did you mean --web.telemetry-path?"),
        (["serve", "--log.level", "warning"], "; did you mean warn?"),
        (["completion", "bass"], "; did you mean bash?"),
    ],
)
def test_what_was_meant(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"{meant}\n")


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("/", "own page"),
        ("/healthz", "own page"),
        ("/readyz", "own page"),
        ("/-/reload", "own page"),
        ("metrics", "does not begin with /"),
        ("", "does not begin with /"),
        ("/a?b", "letters, digits"),
        ("/a#b", "letters, digits"),
        ("/a b", "letters, digits"),
        ("/metrics/", "letters, digits"),
        ("//metrics", "letters, digits"),
        ("/a/../b", "letters, digits"),
        ("/指标", "letters, digits"),
    ],
)
def test_a_path_that_no_scrape_reaches_is_refused(
    path: str, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--web.telemetry-path", path]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert wrong in line
    assert line.endswith("choose another, such as /metrics")


def test_the_page_of_commands_has_every_argument() -> None:
    # The test bed's own probe, where a test process has its folder on the path.
    page = commands_page().replace("misbehave, ", "")
    assert (ROOT / "docs/commands.md").read_text() == page, "make generate"
    for prog, parser in LEAVES.items():
        _, _, rest = page.partition(f"\n## {prog}\n")
        section = rest.partition("\n## ")[0]
        for action in parser._actions:
            for option in action.option_strings:
                assert option in ("-h", "--help") or f"`{option}`" in section, (prog, option)


def completed(*words: str) -> list[str]:
    """What a real bash proposes for the last word."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_nodevitals;'
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", str(COMPLETION), "nodevitals", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (["che"], ["check-config"]),
        (["rules", ""], ["check", "render", "import", "backtest"]),
        (["probe", "nv"], ["nvidia"]),
        (["probe", "node", "--ra"], ["--raw"]),
        (["serve", "--log.format", ""], ["logfmt", "json"]),
        (
            ["check-config", "exporter/packaging/nodevitals.e"],
            ["exporter/packaging/nodevitals.example.yaml"],
        ),
        (["rules", "check", "rul"], ["rules"]),
    ],
)
def test_bash_completes(words: list[str], proposed: list[str]) -> None:
    assert completed(*words) == proposed


def test_bash_completes_every_command_and_every_option() -> None:
    assert completed("") == list(COMMANDS)
    for prog, parser in LEAVES.items():
        options = {option for action in parser._actions for option in action.option_strings}
        assert {*completed(*prog.split()[1:], "--")} == {o for o in options if o.startswith("--")}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_command_prints_the_shipped_completion(shell: str) -> None:
    done = run("completion", shell)
    name = {"bash": "nodevitals.bash", "zsh": "_nodevitals"}[shell]
    assert done.stdout == (COMPLETION.parent / name).read_text()


def test_the_man_page_has_every_command_and_no_warning() -> None:
    """Groff is on Debian by default, not in images; the page itself is looked at everywhere."""
    page = ROOT / "exporter/packaging/nodevitals.1"
    text = page.read_text()
    for prog in LEAVES:
        assert prog.replace("-", "\\-") in text
    assert not re.search(r"^usage:", text, re.MULTILINE)
    macros = {line.split()[0] for line in text.splitlines() if line.startswith(".")}
    assert macros <= {".TH", ".SH", ".TP", ".B", ".UR", ".UE"}
    groff = shutil.which("groff")
    if groff is not None:
        done = subprocess.run(
            [groff, "-man", "-ww", "-Tutf8", str(page)], capture_output=True, check=True
        )
        assert done.stderr == b""


def on_a_terminal(*arguments: str, **more: str) -> str:
    """The output of a command whose stdout is a terminal."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "nodevitals", *arguments],
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env=environment(TERM="xterm", **more),
        ) as process:
            process.wait(60)
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_colours_are_for_terminals_only() -> None:
    assert "\033[32mok\033[0m" in on_a_terminal("probe", "maintenance")
    for silent in (
        on_a_terminal("probe", "maintenance", NO_COLOR="1"),
        run("probe", "maintenance", TERM="xterm").stdout,
    ):
        assert "ok" in silent
        assert "\033" not in silent


def test_a_table_of_wide_and_of_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    from nodevitals.commands.terminal import print_table

    print_table(("NAME", "STATE"), [("节点", "ok"), ("a\x1b[31m\n", "ok"), ("é", "")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME         STATE",
        "节点         ok",
        "a\\x1b[31m\\n  ok",
        "é",
    ]
    assert printable("\u202e") == "\\u202e"
