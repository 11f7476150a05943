"""The shipped Alertmanager configurations, filled in as their comments say: every receiver sends,
to a mail server and a webhook on loopback.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families

from testbed.node import ROOT
from testbed.servers import BINARIES, ServerProcess, show_debian_files
from testbed.webhook import Inbox

# `#key` and, below it, `#  more`; text has one space after the #.
_SETTING = re.compile(r"^( *)#(?=\S|  )", re.MULTILINE)
EXTERNAL_URL = "http://alertmanager.example.com"


def filled_in(name: str) -> dict[str, Any]:
    """Return a shipped configuration with all of its settings, also those in comments."""
    text = (ROOT / "alertmanager" / name).read_text()
    config: dict[str, Any] = yaml.safe_load(_SETTING.sub(r"\1", text))
    return config


def in_chinese(text: str) -> str:
    """Return a configuration's text in Chinese, by the comment in alertmanager.yaml."""
    return text.replace('"nodevitals.', '"nodevitals.zh.')


def send_to(config: dict[str, Any], mail_address: str, post_url: str) -> None:
    """Replace addresses and secrets of a configuration, in place."""
    config["global"] = {
        "smtp_smarthost": mail_address,
        "smtp_from": config["global"]["smtp_from"],
        "smtp_require_tls": False,
    }
    for receiver in config["receivers"]:
        url = f"{post_url}/{receiver['name']}"
        for pager in receiver.get("pagerduty_configs", []):
            del pager["routing_key_file"]
            pager |= {"routing_key": "0" * 32, "url": url}
        for robot in receiver.get("slack_configs", []):
            del robot["api_url_file"]
            robot["api_url"] = url
        for webhook in receiver.get("webhook_configs", []):
            webhook["url"] = f"{url}-webhook"
            webhook.pop("http_config", None)


class Shipped(ServerProcess):
    """A real Alertmanager with the configuration that is in its folder; times are in UTC."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, f"alertmanager-{name}")
        show_debian_files()

    def argv(self) -> list[str]:
        """Return the command line."""
        return [
            *("env", "TZ=UTC", str(BINARIES / "prometheus-alertmanager")),
            f"--config.file={self.folder / 'alertmanager.yaml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--web.external-url={EXTERNAL_URL}",
            "--cluster.listen-address=",
        ]

    def value(self, family: str, **labels: str) -> float:
        """Return the sum of a family's samples with these labels, in Alertmanager's own metrics."""
        text = requests.get(f"{self.url}/metrics", timeout=60).text
        return sum(
            sample.value
            for one in text_string_to_metric_families(text)
            for sample in one.samples
            if sample.name == family and labels.items() <= sample.labels.items()
        )


def start_as_shipped(folder: Path, name: str) -> Shipped:
    """Return an Alertmanager with a shipped configuration as it is."""
    manager = Shipped(folder, name)
    (manager.folder / "alertmanager.yaml").write_text((ROOT / "alertmanager" / name).read_text())
    (manager.folder / "templates").symlink_to(ROOT / "alertmanager/templates")
    return manager


class FilledIn(Shipped):
    """A shipped configuration in a real Alertmanager, and what its receivers are sent.

    All waits are `wait`; `chinese` takes the Chinese form of each text.
    """

    def __init__(self, folder: Path, name: str, wait: str = "500ms", chinese: bool = False) -> None:
        super().__init__(folder, name)
        self.inbox = Inbox()
        config = filled_in(name)
        send_to(config, self.inbox.smarthost, self.inbox.url)
        config["templates"] = [str(ROOT / "alertmanager/templates/*.tmpl")]
        for route in (config["route"], *config["route"]["routes"]):
            route |= {"group_wait": wait, "group_interval": wait}
        text = yaml.safe_dump(config, allow_unicode=True, width=1000)
        if chinese:
            text = in_chinese(text)
        (self.folder / "alertmanager.yaml").write_text(text)

    def __enter__(self) -> FilledIn:
        self.inbox.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.inbox.__exit__(*exception)
