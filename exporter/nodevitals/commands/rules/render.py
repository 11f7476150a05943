"""`nodevitals rules render`: write the rules of a site, or print sampled rules.

With --output, it writes the shipped rules with the site's values, and the sampled rules of FILE to
custom.yaml; without, it prints the latter. In the folder, only files of earlier runs are replaced.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from nodevitals.commands.rules.sampled_rules import SampledRule, parse, render
from nodevitals.commands.rules.site.checks import parse_values
from nodevitals.commands.rules.site.pack import read_pack
from nodevitals.commands.rules.site.rendering import HEAD
from nodevitals.commands.rules.site.rendering import render as render_pack
from nodevitals.commands.rules.site.values_example import EXAMPLE
from nodevitals.commands.shipped import linked, page, shipped
from nodevitals.commands.terminal import CommandError, Subparsers, document_error
from nodevitals.document import DocumentError, read_file

_FOLDERS = ("", "tests", "tests/defaults")


def write(folder: Path, files: Mapping[str, str]) -> int:
    """Write files by their path in the folder, and remove rendered files of an earlier run that
    are no longer made: Prometheus would load them as well. Return the number of those.

    Raises CommandError, before anything is written, where a file that was not rendered is in the
    way.
    """
    try:
        before = {path for name in _FOLDERS for path in (folder / name).glob("*.yaml")}
        ours = {path for path in before if _is_ours(path)}
        wanted = {folder / name: text for name, text in files.items()}
        taken = sorted(str(path) for path in wanted if path in before - ours)
        if taken:
            text = "was not written by rules render: choose another --output"
            raise CommandError("\n".join(f"{path}: {text}" for path in taken))
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.new")
            new.write_text(text)
            os.replace(new, path)
        stale = ours - set(wanted)
        for path in stale:
            path.unlink()
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    return len(stale)


def _is_ours(path: Path) -> bool:
    with path.open() as file:
        return file.readline().startswith(HEAD)


def add_to(actions: Subparsers) -> None:
    """Add `rules render` to the command line."""
    parser = actions.add_parser(
        "render",
        help="write the rules with a site's values; or print sampled rules as Prometheus rules",
        epilog=f"Why it works in this way:\n  {page('docs/adr/0017-site-values.md')}",
    )
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="sampled rules (default: none)")
    add("--values", metavar="FILE", help="the site's values (default: none, rules as shipped)")
    add("--output", metavar="FOLDER", help="folder to write to (default: print sampled rules)")
    add(
        "--with-tests",
        action="store_true",
        help="write tests/ and runbooks/ as well, for `nodevitals rules check FOLDER`",
    )
    add("--rules", metavar="FOLDER", help="rules to render (default: the shipped ones)")
    add("--example", action="store_true", help="print an example of the values file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write or print the rules."""
    folder = Path(options.rules) if options.rules else shipped("rules")
    if options.example:
        print((folder / EXAMPLE).read_text(encoding="utf-8"), end="")
    elif options.output:
        _write(options, folder)
    elif options.values or options.with_tests or not options.file:
        raise CommandError("name an --output FOLDER, or only a FILE of sampled rules to print")
    else:
        print(render(_sampled(options.file)), end="")
    return 0


def _sampled(file: str) -> tuple[SampledRule, ...]:
    try:
        return parse(Path(file).read_bytes())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except DocumentError as error:
        raise document_error(file, error) from None


def _write(options: argparse.Namespace, folder: Path) -> None:
    pack = read_pack(folder)
    try:
        text = read_file(options.values) if options.values else b""
        values = parse_values(text, pack)
    except DocumentError as error:
        raise document_error(options.values, error) from None
    sampled = _sampled(options.file) if options.file else ()
    made = render_pack(pack, values, sampled, with_tests=options.with_tests)
    removed = write(Path(options.output), {name: linked(text) for name, text in made.items()})
    print(f"{options.output}: {len(made)} files written" + f", {removed} removed" * bool(removed))
