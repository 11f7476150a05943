"""The page and the REST API of isolations, on a real store."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from pathlib import Path
from typing import Any, get_args

import bcrypt
from msgspec.structs import replace

from nodevitals_hub.isolation import isolation_tables
from nodevitals_hub.isolation.ledger import Breaker, Ledger
from nodevitals_hub.records import Isolation, IsolationState, Step
from nodevitals_hub.repair import repair_tables
from nodevitals_hub.repair.repair_records import Repair, RepairState
from testbed.hubpages import ORIGIN, Site, site
from testbed.isolations import fault

HOSTILE = '"><script>alert(1)</script>'
USERS = {"ada": "act", "bob": "run"}
SECTIONS = {
    "prometheus": {"url": "http://127.0.0.1:9"},
    "out_of_service": {"scheduler": "slurm", "where": [{"pool": "a"}]},
}
STATES: tuple[IsolationState, ...] = (
    *("waiting", "refused", "isolated", "testing", "kept"),
    *("returned", "canceled", "ended"),
)


def login(name: str) -> dict[str, str]:
    """The header of a user."""
    return {"authorization": f"Basic {base64.b64encode(f'{name}:secret'.encode()).decode()}"}


def isolation(number: int, state: IsolationState, reason: str = "a reason") -> Isolation:
    """One with a fault whose texts are hostile."""
    node = f"gpu-{number}"
    named = replace(fault(node), device_id=HOSTILE)
    return Isolation(
        id=f"20270101-000000-{number:06d}",
        node=node,
        pool="a",
        dry_run=number % 2 == 0,
        state=state,
        faults=(named, fault(node, "ecc")),
        present=(named,),
        created=1.8e9,
        acted=1.8e9 if state in ("isolated", "testing", "kept", "returned") else None,
        reason=reason,
        steps=(Step(1.8e9, HOSTILE, by=HOSTILE),),
    )


def run(folder: Path, steps: Any, **sections: Any) -> None:
    """Run a coroutine function of a site with one isolation in each state."""
    password = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()

    async def whole() -> None:
        users = dict.fromkeys(USERS, password)
        access = {"anonymous": "read", "users": USERS}
        async with site(folder, access, users, **{**SECTIONS, **sections}) as found:
            if "out_of_service" not in sections:
                made = [isolation(n, state) for n, state in enumerate(STATES)]
                await found.hub.database.do(
                    lambda connection: isolation_tables.put(connection, made)
                )
            await steps(found)

    asyncio.run(whole())


def test_the_page_shows_all_escaped_and_buttons_for_those_who_may(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        for language in ("en", "zh"):
            text = (await found.call("GET", f"/isolations?lang={language}")).text
            assert all(f"gpu-{number}" in text for number in range(len(STATES)))
            assert "<script>" not in text
            assert "<form" not in text
        text = (await found.call("GET", "/isolations?lang=en", **login("ada"))).text
        assert text.count("/approve") == 1
        assert text.count("/return") == 5
        assert "Dry run: the hub changes nothing" in text
        assert "to approve or return" not in text.lower()

    run(tmp_path, steps)


def test_repairs_are_shown_escaped(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        owner = "20270101-000000-000002"
        for number, state in enumerate(get_args(RepairState)):
            made = Repair(
                id=f"{owner}-{state}",
                isolation=owner,
                name=f"repair-{number}",
                node="gpu-2",
                fault=HOSTILE,
                state=state,
                created=1.8e9,
                command=("/bin/ticket", HOSTILE),
                timeout=60.0,
                text=HOSTILE,
            )
            await found.hub.database.do(partial(repair_tables.put, repair=made))
        found.parts.isolations.repairs.notes[f"{owner}-late"] = f"2 left {HOSTILE}"
        listed = (await found.call("GET", "/api/v1/isolations")).json()
        assert {one["state"] for one in listed["repairs"]} == set(get_args(RepairState))
        assert listed["waiting_repairs"] == {f"{owner}-late": f"2 left {HOSTILE}"}
        for language, words in (("en", "its end is unknown"), ("zh", "结果未知")):
            text = (await found.call("GET", f"/isolations?lang={language}")).text
            assert words in text
            assert "2 left" in text
            assert all(f"repair-{number}" in text for number in range(8))
            assert "<script>" not in text
            assert "repair_" not in text

    run(tmp_path, steps)


def test_an_open_breaker_and_a_problem_are_shown(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        made = Ledger(breaker=Breaker(open=True, reason="a fleet incident"))
        await found.hub.database.do(
            lambda connection: isolation_tables.put_ledger(connection, made)
        )
        await found.parts.isolations.book.followed()
        listed = (await found.call("GET", "/api/v1/isolations")).json()
        assert (listed["breaker_open"], listed["breaker_reason"]) == (True, "a fleet incident")
        assert listed["problem"] == "not asked yet"
        assert [one["state"] for one in listed["open"]] == list(STATES[:5])
        assert {one["state"] for one in listed["ended"]} == set(STATES[5:])
        assert "Breaker open" in (await found.call("GET", "/isolations")).text
        metrics = (await found.call("GET", "/metrics")).text
        assert 'nodevitals_hub_isolation_breaker_open{dry_run="true"} 1.0' in metrics
        assert 'isolations{dry_run="true",pool="a",state="isolated"} 1.0' in metrics

    run(tmp_path, steps)


def test_people_with_the_role_act_approve_and_return(tmp_path: Path) -> None:
    refused, waiting = "20270101-000000-000001", "20270101-000000-000000"
    headers = {"origin": ORIGIN, "content_type": "application/x-www-form-urlencoded"}

    async def steps(found: Site) -> None:
        path = f"/isolations/{refused}/approve"
        assert (await found.call("POST", path, **login("bob"), **headers)).status_code == 403
        strange = {**headers, "origin": "https://elsewhere.example"}
        assert (await found.call("POST", path, **login("ada"), **strange)).status_code == 403
        assert (await found.call("POST", path, **login("ada"), **headers)).status_code == 303
        again = await found.call("POST", path, **login("ada"), **headers)
        assert again.status_code == 409
        assert "nothing to approve" in again.text
        sent = {**headers, **login("ada"), "accept_language": "zh"}
        assert "无需批准" in (await found.call("POST", path, **sent)).text
        rest = f"/api/v1/isolations/{waiting}/return"
        answer = await found.call("POST", rest, {}, **login("ada"))
        assert answer.json()["state"] == "canceled"
        assert answer.json()["steps"][-1]["by"] == "ada"
        wrong = f"/isolations/{refused}/other"
        assert (await found.call("POST", wrong, **login("ada"), **headers)).status_code == 404

    run(tmp_path, steps)


def test_without_its_section_nothing_is_opened(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        assert "Not set" in (await found.call("GET", "/isolations")).text
        listed = (await found.call("GET", "/api/v1/isolations")).json()
        assert (listed["enabled"], listed["open"]) == (False, [])
        assert "nodevitals_hub_isolation" not in (await found.call("GET", "/metrics")).text
        assert not found.hub.database.exists()

    run(tmp_path, steps, out_of_service=None)
