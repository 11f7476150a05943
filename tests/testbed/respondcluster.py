"""One GPU node and all that responds to its faults: its agent, Prometheus with the shipped rules,
Alertmanager with the shipped routes, a hub, an API server, and the chats of people.

GPUs, the kubelet, the API server and the chats are simulated. In: an empty folder. Out: running
servers, and what people and the API server got. Waits of the rules are shorter; the hub's are set.
"""

from __future__ import annotations

import re
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests
import trustme
from prometheus_client.parser import text_string_to_metric_families

from nodevitals import probes
from testbed.fabric import issue
from testbed.gpus import Machine
from testbed.hubcluster import HubProcess
from testbed.kubelet import Kubelet, Pod
from testbed.kubernetes_api.nodes import NodeApi
from testbed.node import PATIENCE_SECONDS, SOURCES, Node, wait_until
from testbed.notifykills import FarSide
from testbed.servers import Alertmanager, Prometheus
from testbed.webhook import Receiver

NODE, OWNER, PERSON = "gpu-node-2", "team-vision", "Ada"
BROKEN = 3
SPEED = 180.0
SECONDS = 60.0
ISOLATIONS, INCIDENTS = "/api/v1/isolations", "/api/v1/incidents"
_LINK = re.compile(r"http://\S+/incidents/\S+&s=\S+")


class RespondCluster:
    """All of it, running until the with block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.dry_run = True

    def __enter__(self) -> RespondCluster:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack) -> None:
        enter = stack.enter_context
        self._name_node(stack)
        self.agent = enter(self._agent(stack))
        wait_until(lambda: self.agent.get("/readyz").ok, 30, "results of the agent")
        self.chats, self.others = enter(FarSide()), enter(Receiver())
        self.api = enter(NodeApi(self._made("api"), [NODE]))
        self.hub = HubProcess(self._made("hub"), {})
        self.hub.environment = {"KUBECONFIG": str(self.api.kubeconfig)}
        self._issue()
        self.alertmanager = Alertmanager(
            self._folder, self.others.url, SPEED, webhooks=self._webhooks()
        )
        self.prometheus = Prometheus(
            self._folder,
            {NODE: f"127.0.0.1:{self.agent.port}"},
            self.alertmanager,
            SPEED,
            hub=f"127.0.0.1:{self.hub.port}",
        )
        self.hub.write(self._config())
        for server in (self.hub, self.alertmanager, self.prometheus):
            enter(server)
        wait_until(self._is_well, SECONDS, f"{NODE} without a fault; log: {self.hub.log_file}")

    def _is_well(self) -> bool:
        """Whether Prometheus has results of all probes, the job on the GPU, and the hub decides."""
        query = self.prometheus.query
        job = f'nodevitals:job_device{{instance="{NODE}", owner="{OWNER}"}}'
        decides = self.isolations()["problem"] == ""
        return decides and bool(query(job)) and not query("nodevitals_probe_success == 0")

    def _name_node(self, stack: ExitStack) -> None:
        """The hub asks the agent by its name; for all processes of this mount namespace."""
        self._folder.mkdir(exist_ok=True)
        hosts = self._folder / "hosts"
        hosts.write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.1 {NODE}\n")
        subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True, capture_output=True)
        stack.callback(subprocess.run, ["umount", "/etc/hosts"], check=True)

    def _agent(self, stack: ExitStack) -> Node:
        """An agent with these probes only: the others would watch this machine."""
        folder = self._made("gpus")
        self.gpus = Machine(folder, "H100").start()
        devices = {"nvidia.com/gpu": [self.gpus.uuid(BROKEN)]}
        pod = Pod(name="pretrain-0", namespace=OWNER, devices=devices)
        kubelet = stack.enter_context(Kubelet(folder, [pod]))
        enabled = {
            "nvidia": {**self.gpus.settings, "expected": 8},
            "kubernetes": {"socket": str(kubelet.path), "source": "none", "interval": "1s"},
        }
        config = {
            "defaults": {"interval": "1s", "timeout": "1s"},
            "labels": {"pool": "train"},
            "probes": {**{one: {"enabled": False} for one in probes.registered()}, **enabled},
        }
        variables = {"NODE_NAME": NODE, "PYTHONPATH": SOURCES}
        return Node(folder, config, *self.gpus.flags, **variables, **self.gpus.environment)

    def _made(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True)
        return folder

    def _issue(self) -> None:
        own, authority = self.hub.folder, trustme.CA()
        issue(own, authority, "hub.test")
        authority.cert_pem.write_to_path(str(own / "ca.pem"))
        (own / "agents-token").write_text("a token of the test bed's hub\n")
        for channel in ("chat", OWNER):
            (own / f"{channel}-url").write_text(f"json://127.0.0.1:{self.chats.port}/{channel}\n")
            (own / f"{channel}-url").chmod(0o600)

    def _webhooks(self) -> dict[str, dict[str, Any]]:
        """The receivers of the shipped routes that the hub is behind."""
        login = {"authorization": {"credentials": self.hub.tokens["operator"]}}
        webhook = {"url": f"{self.hub.url}/api/v1/notifications", "http_config": login}
        return {"chat": webhook, "job-owner": webhook | {"send_resolved": False}}

    def _config(self) -> dict[str, Any]:
        own = self.hub.folder
        tls = {name: str(own / f"{name.split('_')[0]}.pem") for name in ("cert_file", "key_file")}
        channels = {name: {"url_file": str(own / f"{name}-url")} for name in ("chat", OWNER)}
        return {
            "cluster": "demo",
            "nodes": {"static": [{"targets": [NODE], "labels": {"pool": "train"}}]},
            "agents": {
                "token_file": str(own / "agents-token"),
                "tls": {**tls, "ca_file": str(own / "ca.pem")},
                "metrics_port": self.agent.port,
            },
            "prometheus": {"url": self.prometheus.url},
            "alertmanager": {"url": self.alertmanager.url},
            "notify": {
                "channels": channels,
                "routes": [{"channels": ["chat"], "receivers": ["chat"]}],
                "owners": {"channels": {OWNER: OWNER}},
            },
            "incidents": {"targets": {"critical": {"acknowledge": "5m", "repair": "4h"}}},
            "out_of_service": {
                "scheduler": "kubernetes",
                "where": [{"pool": "train"}],
                "dry_run": self.dry_run,
                "grace": "2s",
                "every": "1s",
                "back": {"enabled": True, "clean": "3s"},
            },
            "drill": {"enabled": True},
        }

    # ---- what people do --------------------------------------------------------------------------

    def end_dry_run(self) -> None:
        """Set dry_run: false, and send SIGHUP."""
        self.dry_run = False
        self.hub.write(self._config())
        self.hub.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self.isolations()["dry_run"], SECONDS, "the end of the dry run")

    def approve(self, identity: str) -> None:
        """The button of the page."""
        path = f"/isolations/{identity}/approve"
        answer = self.hub.request("POST", path, "admin", headers={"Origin": self.hub.url})
        assert answer.ok, answer.text

    def acknowledge(self, text: str) -> str:
        """Follow the link of a message, and acknowledge with a name; the page after it."""
        found = _LINK.search(text)
        assert found is not None, text
        opened = requests.get(found[0], timeout=60)
        fields = dict(re.findall(r'name="(until|s)" value="([^"]+)"', opened.text))
        answer = requests.post(
            f"{opened.url.partition('?')[0]}/acknowledge",
            data={**fields, "name": PERSON},
            headers={"Origin": self.hub.url},
            timeout=PATIENCE_SECONDS,
        )
        assert answer.ok, answer.text
        return answer.text

    def drill(self) -> str:
        """Begin a drill; its id."""
        wanted = {"node": NODE, "fault": "accelerator_lost", "component": "accelerator"}
        answer = self.hub.request("POST", "/api/v1/drills", "admin", json=wanted)
        assert answer.ok, answer.text
        return str(answer.json()["id"])

    def end_drill(self, identity: str) -> None:
        """End it before its time."""
        assert self.hub.request("DELETE", f"/api/v1/drills/{identity}", "admin").ok

    # ---- what they see ---------------------------------------------------------------------------

    def message(self, channel: str, *words: str) -> tuple[str, str]:
        """Title and text of a channel's message with these words, once it has arrived."""

        def found() -> tuple[str, str] | None:
            return next(iter(self.messages(channel, *words)), None)

        what = f"{channel}: {words}; it has {[one[:2] for one in self.chats.taken]}"
        got: tuple[str, str] = wait_until(found, SECONDS, what)
        return got

    def messages(self, channel: str, *words: str) -> list[tuple[str, str]]:
        """Those that have arrived."""
        return [
            (title, text)
            for name, title, text in list(self.chats.taken)
            if name == channel and all(word in f"{title}\n{text}" for word in words)
        ]

    def isolations(self) -> dict[str, Any]:
        """What the hub has taken out of service."""
        found: dict[str, Any] = self.hub.request("GET", ISOLATIONS).json()
        return found

    def isolation(self, state: str, dry_run: bool) -> dict[str, Any]:
        """One in a state, once it is there, and its act is done."""

        def found() -> dict[str, Any] | None:
            listed = self.isolations()
            for one in (*listed["open"], *listed["ended"]):
                done = state != "isolated" or "acted" in one
                if (one["state"], one["dry_run"]) == (state, dry_run) and done:
                    return dict(one)
            return None

        what = f"no isolation {state}, dry_run={dry_run}; log: {self.hub.log_file}"
        got: dict[str, Any] = wait_until(found, SECONDS, what)
        return got

    def incident(self, *, resolved: bool) -> dict[str, Any]:
        """The incident that is no drill, once it is resolved or not."""

        def found() -> dict[str, Any] | None:
            listed = self.hub.request("GET", INCIDENTS).json()["incidents"]
            wanted = (one for one in listed if not one.get("drill"))
            return next((one for one in wanted if ("resolved" in one) == resolved), None)

        got: dict[str, Any] = wait_until(found, SECONDS, f"an incident, resolved: {resolved}")
        return got

    def check(self, identity: str) -> dict[str, Any]:
        """A check that the hub made."""
        found = self.hub.request("GET", f"/api/v1/checks/{identity}").json()["check"]
        return dict(found)

    def queries(self) -> float:
        """How often Prometheus was asked; by the hub, while no one else does."""
        text = requests.get(f"{self.prometheus.url}/metrics", timeout=60).text
        return sum(
            sample.value
            for one in text_string_to_metric_families(text)
            for sample in one.samples
            if sample.name == "prometheus_http_requests_total"
            and sample.labels["handler"] == "/api/v1/query"
        )

    def page(self, path: str) -> str:
        """A page, as a person with the role act sees it."""
        answer = self.hub.request("GET", path, "admin", headers={"Accept": "text/html"})
        assert answer.ok, answer.text
        return answer.text
