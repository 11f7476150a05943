"""The example at the top of the READMEs: one fault of the demo, its mail, and its dashboard.

`tools/private-mounts .venv/bin/python -m demo.story` starts the demo, injects the fault, and writes
the mail into README.md and README.zh-CN.md and two rows of the dashboard Node into docs/pictures.
In: this checkout. Out: both, in English and Chinese, from one run. Rules and routes wait as
shipped: it takes four minutes.
"""

from __future__ import annotations

import re
import time
from email.message import EmailMessage
from functools import partial
from pathlib import Path

import requests
import yaml
from dashboards.__main__ import FOLDER as DASHBOARDS
from dashboards.preview.__main__ import render
from dashboards.preview.queries import Prometheus, read
from dashboards.preview.span import Span
from matplotlib import font_manager, rcParams

from demo import ROOT, ending
from demo.pipeline import Pipeline
from demo.start import started
from testbed.mailserver import MailServer
from testbed.node import wait_until

READMES = {"en": "README.md", "zh": "README.zh-CN.md"}
TEMPLATES = {
    "en": ("nodevitals.subject", "nodevitals.text"),
    "zh": ("nodevitals.zh.subject", "nodevitals.zh.text"),
}
CHINESE_FONT = ROOT / ".tools/browser/usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf"
BLOCK = re.compile(r"(<!-- mail: written by demo\.story -->\n\n```text\n)(.*?)(```\n)", re.DOTALL)
# A README's page is as wide.
MOST_CHARACTERS = 108
NODE, GPU = "gpu-node-1", 2
# Rows of the dashboard by the lines of its grid that their content takes: alerts, GPUs.
ROWS = {8: 2, 15: 5.75}
WIDTH_PX = 1150
ARRIVAL_SECONDS = 600.0
# What the panels read, and rules record after the alert.
LOST = "nodevitals:accelerator_state == 5"


def send_mails(pipeline: Pipeline, address: str) -> None:
    """Make the pages of the demo mails, one in each language."""
    path = pipeline.alertmanager.folder / "alertmanager.yaml"
    config = yaml.safe_load(path.read_text())
    config["global"] = {
        "smtp_smarthost": address,
        "smtp_from": "alertmanager@example.com",
        "smtp_require_tls": False,
    }
    [pages] = [one for one in config["receivers"] if one["name"] == "on-call"]
    pages["email_configs"] = [
        {
            "to": f"{language}@example.com",
            "headers": {"Subject": f'{{{{ template "{subject}" . }}}}'},
            "text": f'{{{{ template "{text}" . }}}}',
            "html": "",
        }
        for language, (subject, text) in TEMPLATES.items()
    ]
    path.write_text(yaml.safe_dump(config))
    requests.post(f"{pipeline.alertmanager.url}/-/reload", timeout=10).raise_for_status()


def mail_text(mail: EmailMessage) -> str:
    """Return the subject and what stands above the links of a mail; a long line ends with …."""
    [body] = [part for part in mail.walk() if part.get_content_type() == "text/plain"]
    lines = [mail["Subject"], "", *body.get_content().strip().splitlines()]
    end = next(number for number, line in enumerate(lines) if "/runbooks/" in line)
    short = (
        line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 2].rstrip()} …"
        for line in lines[:end]
    )
    return "".join(f"{line}\n" for line in short)


def write_mail(readme: Path, text: str) -> None:
    """Replace the mail in a README."""
    readme.write_text(BLOCK.sub(lambda found: found[1] + text + found[3], readme.read_text()))


def draw(prometheus: str, language: str, path: Path) -> None:
    """Draw the rows of the dashboard, one below the other."""
    board = read(DASHBOARDS / language / "node.json")
    top, rows = 0.0, []
    for y, height in ROWS.items():
        row = [panel for panel in board["panels"] if panel["gridPos"]["y"] == y]
        for panel in row:
            panel["gridPos"] |= {"y": top, "h": height}
        top += height
        rows += row
    board["panels"] = rows
    span = Span.last("now-5m", time.time(), 1)
    render(board, Prometheus(prometheus), span, {"instance": [NODE]}, path, width=WIDTH_PX)


def run_story(pictures: Path) -> dict[str, str]:
    """Run the fault, draw its pictures, and return its mail by language."""
    font_manager.fontManager.addfont(str(CHINESE_FONT))
    rcParams["font.family"] = ["DejaVu Sans", "Droid Sans Fallback"]
    with ending.complete(), started(speed=1) as pipeline, MailServer() as mails:
        send_mails(pipeline, mails.address)
        pipeline.gpus.lose(GPU)
        wait_until(lambda: len(mails.mails) >= len(READMES), ARRIVAL_SECONDS, "the mails")
        recorded = partial(pipeline.prometheus.query, LOST)
        wait_until(recorded, ARRIVAL_SECONDS, "the state of the GPU")
        for language in READMES:
            draw(pipeline.prometheus.url, language, pictures / f"story.{language}.png")
        return {str(mail["To"]).partition("@")[0]: mail_text(mail) for mail in mails.mails}


if __name__ == "__main__":
    for language, text in run_story(ROOT / "docs/pictures").items():
        write_mail(ROOT / READMES[language], text)
