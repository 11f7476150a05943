"""The hub's example configuration and docs/hub-configuration.md, made from its settings."""

from __future__ import annotations

from nodevitals.commands.generated.configuration_page import table
from nodevitals.commands.generated.example import fields_of, key_lines, struct_in
from nodevitals_hub.settings.hub import HubSettings

EXAMPLE_HEAD = """\
# Configuration of the hub; by convention /etc/nodevitals/hub.yaml.
# nodevitals hub --config.file=FILE checks it at its start, and says all that is wrong with it.
#
# Every key is optional, unless its text says so; an unknown key is an error. Durations: 500ms, 30s,
# 5m, 1h, 1d. Remove the # before a key, and before those that it is in, to set it. The values shown
# are the defaults or, where there is none, examples.
"""
PAGE_HEAD = """\
# Configuration of the hub

Every key of `/etc/nodevitals/hub.yaml`, made from the same source as
[the example](../hub/nodevitals-hub.example.yaml). Every key is optional, unless its
default is `required`; an unknown key is an error. The key of a mapping within another is written
`outer.inner`, that of the mappings in a list `list[].key`, that of a mapping that you name
`outer.NAME.inner`. [The types](configuration.md) are those of the agent's configuration.
[The hub](hub.md) says what it is for.
"""


def hub_example() -> str:
    """Return the example configuration."""
    lines = [EXAMPLE_HEAD]
    for field in fields_of(HubSettings):
        lines += [*key_lines(field, ""), ""]
    return "\n".join(lines).rstrip() + "\n"


def hub_configuration_page() -> str:
    """Return the page: a table of the keys at the top, and one per section."""
    fields = fields_of(HubSettings)
    parts = [PAGE_HEAD, "\n## The hub itself\n"]
    parts.append(table([field for field in fields if struct_in(field.hint) is None]))
    for field in fields:
        if struct_in(field.hint) is not None:
            parts.append(f"\n## {field.name}\n{table([field])}")
    return "".join(parts)
