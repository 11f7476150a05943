"""`nodevitals rules check | render | import`. The agent needs nothing of this."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from nodevitals.commands.terminal import CommandError, print_table
from nodevitals.document import DocumentError


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `rules` and its actions to the command line."""
    parser = commands.add_parser("rules", help="check, render and import rule files")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    check = actions.add_parser(
        "check", help="would they fire, on what is exposed, and say enough? runs promtool too"
    )
    check.add_argument("folder", nargs="?", default="rules", metavar="FOLDER")
    check.add_argument("--promtool", metavar="PATH", help="default: the one on PATH, if any")
    check.add_argument("--json", action="store_true", help="one JSON array")
    check.set_defaults(run=_check)
    render = actions.add_parser("render", help="sampled rules as Prometheus rules, on stdout")
    render.add_argument("file", metavar="FILE")
    render.set_defaults(run=_render)
    convert = actions.add_parser(
        "import", help="RepairManager's files as rules and an Alertmanager configuration"
    )
    convert.add_argument("folder", metavar="FOLDER", help="where config.yaml and the others lie")
    convert.add_argument("--output", required=True, metavar="FOLDER", help="where to write")
    convert.add_argument("--json", action="store_true", help="what became of each key, as JSON")
    convert.set_defaults(run=_import)


def _check(options: argparse.Namespace) -> int:
    from nodevitals.commands.rules.check import check, find_promtool

    promtool = options.promtool or find_promtool()
    findings = check(Path(options.folder), promtool)
    if options.json:
        _print_json(findings)
    elif findings:
        rows = [msgspec.structs.astuple(finding) for finding in findings]
        print_table(("FILE", "RULE", "PROBLEM"), rows)
    else:
        print(f"{options.folder}: ok{'' if promtool else '; promtool was not found, and not run'}")
    return int(bool(findings))


def _render(options: argparse.Namespace) -> int:
    from nodevitals.commands.rules.render import parse, render

    try:
        print(render(parse(Path(options.file).read_bytes())), end="")
    except OSError as error:
        raise CommandError(f"{options.file}: {error.strerror}") from None
    except DocumentError as error:
        problems = [f"{options.file}: {problem}" for problem in error.problems]
        raise CommandError("\n".join(problems)) from None
    return 0


def _import(options: argparse.Namespace) -> int:
    from nodevitals.commands.rules.repair_manager import FILES, convert

    source, output = Path(options.folder), Path(options.output)
    try:
        texts = {name: (source / name).read_bytes() for name in FILES if (source / name).exists()}
        if not texts:
            raise CommandError(f"{source}: none of {', '.join(FILES)} is here")
        converted = convert(texts)
        output.mkdir(parents=True, exist_ok=True)
        for name, text in converted.files.items():
            with (output / name).open("x") as file:  # never over what somebody wrote
                file.write(text)
    except DocumentError as error:
        problems = [f"{source}/{problem}" for problem in error.problems]
        raise CommandError("\n".join(problems)) from None
    except FileExistsError as error:
        raise CommandError(f"{error.filename} is there already: name another --output") from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    if options.json:
        _print_json(converted.keys)
        return 0
    rows = [
        (key.file, key.path, key.became or f"NOT CARRIED OVER: {key.why}") for key in converted.keys
    ]
    print_table(("FILE", "KEY", "BECAME"), rows)
    lost = sum(not key.became for key in converted.keys)
    print(f"\nWritten to {output}: {', '.join(converted.files)}.", end=" ")
    print(f"Not carried over: {lost} of {len(rows)} keys.")
    return 0


def _print_json(value: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
