"""A channel whose URL nothing can be sent to is an error before the hub starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodevitals.commands.cli import main

CHECK = ("hub", "--check-config", "--config.file")
HINT = "write the URL of this channel"


def hub_file(folder: Path, **urls: str | None) -> Path:
    """The configuration with these channels; None for a file that is not there."""
    lines = ["notify:", "  channels:"]
    for name, url in urls.items():
        lines.append(f"    {name}: {{url_file: {folder}/{name}}}")
        if url is not None:
            (folder / name).write_text(url)
            (folder / name).chmod(0o600)
    file = folder / "hub.yaml"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("command", [CHECK, ("hub", "--config.file")], ids=["check", "start"])
def test_urls_that_nothing_understands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    file = hub_file(
        tmp_path,
        mail="mailto://operator:sesame@",
        chat="nonsense://sesame",
        robot="feishu://sesame@",
        two="json://sesame\njson://sesame\n",
        owners="json://{owner}.example.org/sesame",
        good="json://example.org/sesame",
    )
    listen = ("--web.listen-address", "127.0.0.1:0") if command != CHECK else ()
    assert main([*command, str(file), *listen]) == 1
    printed = capsys.readouterr().err
    assert "sesame" not in printed
    mail, chat, robot, two, owners = printed.splitlines()
    no_url = "not a URL that Apprise understands"
    assert mail == (
        f"{file}:3:12: notify.channels.mail.url_file: {tmp_path}/mail: {no_url}: {HINT}"
    )
    assert chat.endswith(f"notify.channels.chat.url_file: {tmp_path}/chat: {no_url}: {HINT}")
    assert "notify.channels.robot.url_file: " in robot
    assert two.endswith(f"{tmp_path}/two: has 2 lines: write one URL")
    assert "notify.channels.owners.url_file: " in owners


def test_a_file_that_is_not_there_yet_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read for each message; with --strict it is an error."""
    file = hub_file(tmp_path, later=None, good="json://example.org/{owner}", robot="lark://token1/")
    assert main([*CHECK, str(file)]) == 0
    [warning] = capsys.readouterr().err.splitlines()
    place = f"{file}:3:13: notify.channels.later.url_file: "
    assert warning.startswith(f"warning: {place}'{tmp_path}/later' is not here: ")
    assert main([*CHECK, str(file), "--strict"]) == 1
    assert capsys.readouterr().err.startswith(place)


def test_errors_of_all_sections_are_shown_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chat").write_text("nonsense://sesame")
    (tmp_path / "chat").chmod(0o600)
    file = tmp_path / "hub.yaml"
    file.write_text(
        "external_url: nothing\n"
        "limits: {queued: none}\n"
        "agents: {token_file: /t}\n"
        "alerts: [{alertname: A, preset: none}]\n"
        f"notify: {{channels: {{chat: {{url_file: {tmp_path}/chat}}}}}}\n"
    )
    assert main([*CHECK, str(file)]) == 1
    paths = [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()]
    assert paths == [
        *("external_url", "limits.queued", "agents.tls", "alerts[0].preset"),
        "notify.channels.chat.url_file",
    ]
