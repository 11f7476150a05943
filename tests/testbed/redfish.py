"""A BMC's Redfish service over HTTPS: only GET, a password, links, pages, and every failure.

Two shapes: `old` has the resources Power and Thermal, `new` has a resource per part. Names, paths
and numbers are invented; identifiers in paths differ from those that vendors use.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trustme

Json = dict[str, Any]

ROOT = "/redfish/v1/"
CHASSIS = "/redfish/v1/Chassis/box-7"
SYSTEM = "/redfish/v1/Systems/sys-3"
LOG = f"{SYSTEM}/LogServices/Hardware"
ENTRIES = f"{LOG}/Records"
GOOD = {"State": "Enabled", "Health": "OK"}
ABSENT = {"State": "Absent", "Health": None}
# What a service with defects may send in place of anything.
ODD: tuple[Any, ...] = (None, [None], {}, 10**18, "NaN", "x" * 20_000)


def to(where: str) -> Json:
    """A link."""
    return {"@odata.id": where}


def _bare(path: str) -> str:
    return path.rstrip("/")


def _old() -> dict[str, Json]:
    supplies = [
        {"MemberId": "0", "Name": "PSU A", "Status": GOOD, "LineInputVoltage": 230},
        {"MemberId": "1", "Name": "PSU B", "Status": GOOD, "LineInputVoltage": 229.5},
        {"MemberId": "2", "Name": "PSU C", "Status": ABSENT, "LineInputVoltage": None},
    ]
    redundancy: Json = {"MemberId": "0", "Name": "PSU group", "Mode": "N+m", "Status": GOOD}
    battery = {"MemberId": "0", "Name": "VBAT", "ReadingVolts": 3.05, "Status": GOOD}
    fans = [
        {"MemberId": "0", "Name": "Fan A", "Reading": 8400, "ReadingUnits": "RPM", "Status": GOOD},
        {"MemberId": "1", "Name": "Fan B", "Reading": 25, "ReadingUnits": "Percent"},
        {"MemberId": "2", "Name": "Fan C", "Reading": 0, "ReadingUnits": "RPM", "Status": ABSENT},
    ]
    fans[1]["Status"] = GOOD
    temperatures = [
        {"Name": "Inlet", "ReadingCelsius": 23, "PhysicalContext": "Intake", "Status": GOOD},
        {"Name": "Outlet", "ReadingCelsius": 41, "UpperThresholdCritical": 70, "Status": {}},
        {"Name": "Bay 9", "ReadingCelsius": None, "Status": {"State": "Enabled", "Health": "OK"}},
    ]
    chassis = {"Power": to(f"{CHASSIS}/P"), "Thermal": to(f"{CHASSIS}/T")}
    return {
        CHASSIS: {"Id": "box-7", **chassis},
        f"{CHASSIS}/P": {
            "PowerControl": [{"PowerConsumedWatts": 812}],
            "PowerSupplies": supplies,
            "Redundancy": [redundancy],
            "Voltages": [battery],
        },
        f"{CHASSIS}/T": {
            "Fans": fans,
            "Temperatures": temperatures,
            "Redundancy": [{"Name": "Fan group", "Mode": "N+m", "Status": GOOD}],
        },
    }


def _new() -> dict[str, Json]:
    one: dict[str, Json] = {}
    power, cooling, sensors = f"{CHASSIS}/PowerSub", f"{CHASSIS}/Cool", f"{CHASSIS}/S"
    for name, status in (("PSU A", GOOD), ("PSU B", GOOD), ("PSU C", ABSENT)):
        state: Json = {"Status": status, "LineInputStatus": "Normal" if status is GOOD else None}
        one[f"{power}/Bays/{name[-1]}"] = {"Id": name[-1], "Name": name, **state}
    for name, speed in (("Fan A", {"Reading": 40, "SpeedRPM": 8400}), ("Fan B", {"Reading": 25})):
        fan = {"Id": name[-1], "Name": name, "SpeedPercent": speed, "Status": GOOD}
        one[f"{cooling}/F/{name[-1]}"] = fan
    one[f"{cooling}/F/C"] = {"Id": "C", "Name": "Fan C", "SpeedPercent": {}, "Status": ABSENT}
    kind: Json = {"ReadingType": "Temperature", "Status": GOOD}
    one[f"{sensors}/1"] = {"Id": "1", "Name": "Inlet", "Reading": 23, **kind}
    one[f"{sensors}/1"]["PhysicalContext"] = "Intake"
    one[f"{sensors}/2"] = {"Id": "2", "Name": "Outlet", "Reading": 41, **kind}
    one[f"{sensors}/3"] = {"Id": "3", "Name": "Bay 9", "Reading": None, **kind}
    one[f"{sensors}/4"] = {"Id": "4", "Name": "VDD", "Reading": 1.1, "ReadingType": "Voltage"}
    readings = [{"Reading": 23, "DataSourceUri": f"{sensors}/{at}"} for at in (1, 2, 3)]
    group: Json = {"RedundancyType": "NPlusM", "Status": GOOD}
    return {
        **one,
        CHASSIS: {
            "Id": "box-7",
            "PowerSubsystem": to(power),
            "ThermalSubsystem": to(cooling),
            "EnvironmentMetrics": to(f"{CHASSIS}/Env"),
            "Sensors": to(sensors),
        },
        f"{CHASSIS}/Env": {"PowerWatts": {"Reading": 812}},
        power: {
            "PowerSupplies": to(f"{power}/Bays"),
            "PowerSupplyRedundancy": [{**group, "GroupName": "PSU group"}],
        },
        cooling: {
            "Fans": to(f"{cooling}/F"),
            "FanRedundancy": [{**group, "GroupName": "Fan group"}],
            "ThermalMetrics": to(f"{cooling}/M"),
        },
        f"{cooling}/M": {"TemperatureReadingsCelsius": readings},
        **{
            where: {"Members": [to(path) for path in one if path.rpartition("/")[0] == where]}
            for where in (f"{power}/Bays", f"{cooling}/F", sensors)
        },
    }


def documents(shape: str) -> dict[str, Json]:
    """All resources but the entries of the log, by path."""
    version, manager = "/redfish/v1", "/redfish/v1/Managers/m-1"
    first: dict[str, Json] = {
        ROOT: {
            "Vendor": "Example",
            "Chassis": to(f"{version}/Chassis"),
            "Systems": to(f"{version}/Systems"),
            "Managers": to(f"{version}/Managers"),
        },
        f"{version}/Managers": {"Members": [to(manager)]},
        manager: {"Id": "m-1", "FirmwareVersion": "4.21"},
        f"{version}/Systems": {"Members": [to(SYSTEM)]},
        SYSTEM: {
            "Id": "sys-3",
            "Links": {"Chassis": [to(CHASSIS)]},
            "LogServices": to(f"{SYSTEM}/LogServices"),
        },
        f"{SYSTEM}/LogServices": {"Members": [to(LOG)]},
        LOG: {
            "Id": "Hardware",
            "LogEntryType": "SEL",
            "MaxNumberOfRecords": 200,
            "Entries": to(ENTRIES),
        },
        f"{version}/Chassis": {"Members": [to(CHASSIS), to(f"{version}/Chassis/other")]},
        f"{version}/Chassis/other": {"Id": "other"},
    }
    return copy.deepcopy({**first, **(_old() if shape == "old" else _new())})


class Redfish:
    """The service; tests change its fields. `answer`, while it is set, may answer a request instead
    of it: given the request's number from 1 and its path, it returns a status, the name of a
    behaviour (`hang`, `cut`, `huge`, `garbage`, `elsewhere`, `trickle`), bytes, or None.
    """

    def __init__(self, folder: Path, shape: str = "old", host: str = "127.0.0.1") -> None:
        self.documents = documents(shape)
        self.log: list[Json] = []
        self.newest_first = True
        self.expanded = True
        """Whether pages of the log have the entries, or links to them."""
        self.page_size = 0
        self.closes = False
        """Whether each connection is closed after one answer, without a word about it."""
        self.answer: Callable[[int, str], int | str | bytes | None] = lambda _number, _path: None
        self.requests: list[str] = []
        self.refused: list[str] = []
        """What was not a GET, was without the password, or asked for what no link leads to."""
        self.connections = 0
        self.folder = folder
        self.ca_file = folder / "redfish-ca.crt"
        (folder / "bmc-username").write_text("reader\n")
        self.set_password("a:Secret-ü")
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(host).configure_cert(context)
        self._ended = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._http.socket = context.wrap_socket(
            self._http.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._http.server_address[1]}"

    @property
    def settings(self) -> dict[str, Any]:
        """`redfish` of the probe's settings."""
        return {
            "url": self.url,
            "username_file": str(self.folder / "bmc-username"),
            "password_file": str(self.folder / "bmc-password"),
            "ca_file": str(self.ca_file),
        }

    def set_password(self, password: str) -> None:
        """Accept another password from now on; write it for the probe."""
        (self.folder / "bmc-password").write_text(f"{password}\n", encoding="utf-8")
        token = base64.b64encode(f"reader:{password}".encode()).decode()
        self.authorization = f"Basic {token}"

    def event(self, sensor: str | None, severity: str, code: str = "Assert", **more: Any) -> None:
        """Append an entry to the log."""
        number = len(self.log) + 1
        created = f"2026-11-20T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}+00:00"
        where = to(f"{ENTRIES}/{number}")
        entry = {**where, "Id": str(number), "EntryType": "SEL", "Created": created}
        entry.update({"Severity": severity, "EntryCode": code, "SensorNumber": 83, **more})
        self.log.append({**entry, **({"SensorType": sensor} if sensor is not None else {})})

    def __enter__(self) -> Redfish:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    super().handle()

            def do_GET(self) -> None:
                server.requests.append(self.path)
                server._respond(self)

            def parse_request(self) -> bool:
                is_one = super().parse_request()
                if is_one and self.command != "GET":
                    server.refused.append(f"{self.command} {self.path}")
                return is_one

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _respond(self, request: BaseHTTPRequestHandler) -> None:
        wanted = self.answer(len(self.requests), request.path)
        is_root = request.path == ROOT
        if not is_root and request.headers.get("Authorization") != self.authorization:
            self.refused.append(f"no password: {request.path}")
            wanted = 401
        if wanted == "hang":
            self._ended.wait(600)
        document = self._document(request.path)
        if document is None and request.path.rstrip("/") not in map(_bare, self.documents):
            self.refused.append(f"no link: {request.path}")
        status = wanted if isinstance(wanted, int) else 200 if document is not None else 404
        body = json.dumps(document or {"error": {"code": "Base.1.0.GeneralError"}}).encode()
        body = {"huge": b'{"a": "' + b"x" * 2**21 + b'"}', "garbage": b"<html>{"}.get(
            str(wanted), wanted if isinstance(wanted, bytes) else body
        )
        if wanted == "elsewhere":
            status = 302
        request.send_response(status)
        if wanted == "elsewhere":
            other = self.url.replace("127.0.0.1", "127.0.0.2")
            request.send_header("Location", f"{other}{request.path}")
        elif status == 308:
            request.send_header("Location", f"{request.path}/")
        request.send_header("Content-Length", str(len(body) + 9 * (wanted == "cut")))
        request.end_headers()
        if wanted == "trickle":
            for one in body:
                request.wfile.write(bytes([one]))
                if self._ended.wait(0.1):
                    return
        request.wfile.write(body)
        request.close_connection = wanted == "cut" or self.closes

    def _document(self, path: str) -> Json | None:
        parts = urlsplit(path)
        where = parts.path if parts.path == ROOT else parts.path.rstrip("/")
        if where == ENTRIES:
            return self._page(int(parts.query.partition("=")[2] or 0))
        if where.startswith(f"{ENTRIES}/"):
            return next((one for one in self.log if one["@odata.id"] == where), None)
        if parts.query == "$expand=.($levels=1)":
            found = copy.deepcopy(self.documents[where])
            members = [self.documents[one["@odata.id"]] for one in found["Members"]]
            return {**found, "Members": members}
        return self.documents.get(where) if not parts.query else None

    def _page(self, start: int) -> Json:
        log = self.log[::-1] if self.newest_first else self.log
        end = start + (self.page_size or len(log))
        members = [one if self.expanded else to(one["@odata.id"]) for one in log[start:end]]
        page: Json = {"Members@odata.count": len(log), "Members": members}
        if end < len(log):
            page["Members@odata.nextLink"] = f"{ENTRIES}?$skip={end}"
        return page
