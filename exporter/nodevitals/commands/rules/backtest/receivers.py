"""Who is notified of an alert: amtool tests its labels against Alertmanager's routes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nodevitals.commands.rules.routes import matcher_labels
from nodevitals.commands.terminal import FOUND_WRONG, CommandError, document_error
from nodevitals.document import DocumentError, parse_yaml


class Routes:
    """The routes of a configuration file. Raises CommandError."""

    def __init__(self, file: str, amtool: str | None) -> None:
        found = amtool or shutil.which("amtool")
        if found is None:
            raise CommandError("amtool is not on PATH: install Alertmanager, or give --amtool PATH")
        self._argv = [found, "config", "routes", "test", f"--config.file={file}"]
        try:
            config: Any = parse_yaml(Path(file).read_bytes())
        except OSError as error:
            text = f"{file}: {error.strerror}; choose another --alertmanager-config"
            raise CommandError(text) from None
        except DocumentError as error:
            raise document_error(file, error) from None
        try:
            # amtool runs once per set of values of the labels that the routes match.
            self._names = matcher_labels(config)
        except ValueError as error:
            raise CommandError(f"{file}: {error}", FOUND_WRONG) from None
        self._receivers: dict[tuple[str, ...], tuple[str, ...]] = {}

    def receivers(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """The receivers of an alert, in the order of the routes. Raises CommandError."""
        pairs = tuple(
            f"{name}={json.dumps(value, ensure_ascii=False)}"
            for name, value in sorted(labels.items())
            if name in self._names
        )
        if pairs not in self._receivers:
            self._receivers[pairs] = tuple(self._tested(pairs))
        return self._receivers[pairs]

    def _tested(self, pairs: tuple[str, ...]) -> Iterator[str]:
        try:
            done = subprocess.run(
                [*self._argv, *pairs],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            text = f"{self._argv[0]}: {error.strerror}; choose another --amtool"
            raise CommandError(text) from None
        if done.returncode:
            text = " ".join((done.stderr + done.stdout).split())[:500]
            raise CommandError(f"{self._argv[0]}: {text}", FOUND_WRONG)
        # Two routes to one receiver are two groups of one receiver.
        yield from dict.fromkeys(done.stdout.strip().split(","))
