"""The five messages of the documentation, rendered by the shipped templates and written there."""

from __future__ import annotations

from pathlib import Path

from testbed import messages


def main(folder: Path) -> None:
    """Print the messages and write them to the documentation."""
    section = messages.markdown(messages.messages(folder))
    print(section)
    messages.write(section)
    print(f"{messages.PAGE.name} written")
