"""A real Prometheus that has scraped the fleet for an hour and evaluates rules."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests
import yaml

from testbed.replicas import samples
from testbed.servers import PrometheusProcess
from testbed.site import past
from testbed.site.hub import LEASE_SECONDS
from testbed.site.series import Series, labels_of
from testbed.site.server import PAGES, SitePages, write

PAST_SECONDS = 4200
# Between two evaluations of rules in the past.
_EVALUATION_SECONDS = 30
_BATCH_SECONDS = 600


class SitePrometheus(PrometheusProcess):
    """Prometheus over the pages of a site; `step` is its scrape interval in seconds, `also` what
    its configuration has besides.
    """

    prefix = ("nice",)
    flags = ("--web.enable-remote-write-receiver", "--rules.alert.for-grace-period=0s")

    def __init__(
        self,
        folder: Path,
        pages: SitePages,
        rules: Path | None,
        step: int,
        port: int | None = None,
        cluster: str = "",
        past_seconds: int = PAST_SECONDS,
        also: Mapping[str, Any] | None = None,
        now: float | None = None,
        fast: Sequence[Series] = (),
    ) -> None:
        """`fast` has a sample per second at the end of the past."""
        super().__init__(folder, "prometheus")
        if port:
            self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.step = step
        self._cluster = cluster
        self._also = also or {}
        self._now = now or time.time()
        self._past_seconds = past_seconds
        self._pages = pages
        self._fast = fast
        self._rules = rules
        self.filled_until = 0.0
        """The Unix time of the last sample of the past: what is asked of then does not depend on
        when the rules are first evaluated.
        """
        self._write(rules=False)

    def __enter__(self) -> SitePrometheus:
        """Start it without rules, fill in the past, and start it again with rules."""
        super().__enter__()
        now = self._now // self.step * self.step
        moments = [now - past for past in range(self._past_seconds, 0, -self.step)]
        self.filled_until = moments[-1]
        each, before = _BATCH_SECONDS // self.step, None
        for first in range(0, len(moments), each):
            some = moments[first : first + each]
            write(self.url, self._pages.series, some, before)
            before = some[-1]
        if self._rules:
            every = max(self.step, _EVALUATION_SECONDS)
            self._evaluate(self._rules, [moment for moment in moments if moment % every == 0])
        super().__exit__()
        self._write(rules=True)
        super().__enter__()
        write(self.url, self._own(), moments, ends=False)
        seconds = [self.filled_until - past for past in range(LEASE_SECONDS, -1, -1)]
        write(self.url, self._fast, seconds, ends=False)
        return self

    def _own(self) -> list[Series]:
        """Return the metrics of this server as they are now: its past has nothing else of them."""
        own = {"job": "prometheus", "instance": f"127.0.0.1:{self.port}", "cluster": self._cluster}
        page = samples(requests.get(f"{self.url}/metrics", timeout=60).text)
        return [Series("up", own, 1.0)] + [
            Series(name, own | labels_of(text), value) for name, text, value in page
        ]

    def _evaluate(self, rules: Path, moments: list[float]) -> None:
        """Write what the rules would have recorded."""
        span = {
            "start": f"{moments[0]}",
            "end": f"{moments[-1]}",
            "step": f"{moments[1] - moments[0]}",
        }
        for rule in past.ordered(rules):
            written: dict[str, set[float]] = {}
            own = past.evaluated(rule, moments)
            for _ in range(past.passes(rule)):
                answer = self.ask("query_range", query=rule["expr"], **span)["result"]
                made = list(past.results(rule, answer, own, written))
                write(self.url, made, own, ends=past.passes(rule) == 1)

    def _write(self, rules: bool) -> None:
        interval = f"{self.step}s"
        config: dict[str, Any] = {
            "global": {"scrape_interval": interval, "evaluation_interval": "15s"},
            "storage": {"tsdb": {"out_of_order_time_window": "6h"}},
        }
        if rules:
            config["scrape_configs"] = [
                {
                    "job_name": "site",
                    "honor_labels": True,
                    "static_configs": [
                        {
                            "targets": [self._pages.address],
                            "labels": {"__metrics_path__": f"/{page}"},
                        }
                        for page in range(PAGES)
                    ],
                },
                {
                    "job_name": "prometheus",
                    "static_configs": [
                        {
                            "targets": [f"127.0.0.1:{self.port}"],
                            "labels": {"cluster": self._cluster},
                        }
                    ],
                },
            ]
            config["alerting"] = {
                "alertmanagers": [{"static_configs": [{"targets": [self._pages.address]}]}]
            }
            if self._rules:
                config["rule_files"] = [f"{self._rules}/*.yaml"]
            config["global"] |= self._also.get("global", {})
            config |= {key: value for key, value in self._also.items() if key != "global"}
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the API."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=60).json()
        assert answer["status"] == "success", answer
        return answer["data"]
