"""`nodevitals rules render`: write the rules of a site, or print sampled rules.

With --output, the shipped rules with the site's values; with FILE, sampled rules as
Prometheus rules on stdout.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nodevitals.commands.rules.sampled_rules import parse, render
from nodevitals.commands.rules.site.checks import parse_values
from nodevitals.commands.rules.site.output import write
from nodevitals.commands.rules.site.pack import read_pack, shipped_folder
from nodevitals.commands.rules.site.rendering import render as render_pack
from nodevitals.commands.rules.site.values_example import EXAMPLE
from nodevitals.commands.terminal import CommandError, Subparsers, document_error
from nodevitals.document import DocumentError, read_file


def add_to(actions: Subparsers) -> None:
    """Add `rules render` to the command line."""
    parser = actions.add_parser(
        "render",
        help="write the rules with a site's values; or print sampled rules as Prometheus rules",
        epilog="docs/adr/0017-site-values.md explains the choices.",
    )
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="sampled rules to print as Prometheus rules")
    add("--values", metavar="FILE", help="the site's values (default: none, rules as shipped)")
    add("--output", metavar="FOLDER", help="folder to write the rule files to")
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
    if sum(map(bool, (options.file, options.output, options.example))) != 1:
        raise CommandError("name one of --output FOLDER, FILE (sampled rules) and --example")
    if not options.output and (options.values or options.with_tests):
        raise CommandError("--values and --with-tests need --output FOLDER")
    folder = Path(options.rules) if options.rules else shipped_folder()
    if options.example:
        print((folder / EXAMPLE).read_text(), end="")
    elif options.file:
        _print_sampled(options.file)
    else:
        _write(options, folder)
    return 0


def _print_sampled(file: str) -> None:
    try:
        print(render(parse(Path(file).read_bytes())), end="")
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
    made = render_pack(pack, values, with_tests=options.with_tests)
    removed = write(Path(options.output), made)
    print(f"{options.output}: {len(made)} files written" + f", {removed} removed" * bool(removed))
