"""Switches: the neighbours that lldpctl and ibnetdiscover print, lists of ports, shared cables."""

from __future__ import annotations

from typing import Any

import pytest

from nodevitals.probes.switches.probe import SwitchesSettings
from nodevitals.probes.switches.sources import (
    MAX_PATTERNS,
    Neighbour,
    Port,
    parse_list,
    parse_neighbours,
    parse_port,
    parse_topology,
    spread,
)
from testbed.switches import NO_DAEMON, compact, json0, neighbour, topology

LEAF = Neighbour("leaf-1", "Ethernet7")
HEAD = "host,device,port,switch,switch_port\n"
FORMATS = pytest.mark.parametrize("written", [json0, compact], ids=["json0", "json"])


@FORMATS
@pytest.mark.parametrize("count", [1, 2, 9])
def test_neighbours_of_one_or_several_interfaces(written: Any, count: int) -> None:
    """In json, the form of the document depends on the number."""
    seen = [(f"ens{n}f0", neighbour(f"leaf-{n}", f"Ethernet{n}")) for n in range(count)]
    found = parse_neighbours(written(seen))
    assert found == {
        Port(f"ens{n}f0"): [Neighbour(f"leaf-{n}", f"Ethernet{n}")] for n in range(count)
    }


@FORMATS
def test_no_neighbour(written: Any) -> None:
    assert parse_neighbours(written([])) == {}


@FORMATS
@pytest.mark.parametrize(
    ("port", "kind", "description", "name"),
    [
        ("Ethernet1/12", "ifname", "to node-7", "Ethernet1/12"),
        ("Eth3", "local", "to node-7", "Eth3"),
        ("531", "local", "et-0/0/12", "et-0/0/12"),
        ("02:5a:00:00:aa:09", "mac", "swp9", "swp9"),
        ("531", "local", "", "531"),
        ("a\nb", "ifname", "", ""),
    ],
)
def test_port_of_a_switch_is_named(
    written: Any, port: str, kind: str, description: str, name: str
) -> None:
    """A number or an address is taken only where there is no description."""
    one = neighbour("leaf-1", port, kind, description=description)
    assert parse_neighbours(written([("ens1f0", one)])) == {
        Port("ens1f0"): [Neighbour("leaf-1", name)]
    }


@FORMATS
def test_switch_without_a_name_is_its_address(written: Any) -> None:
    found = parse_neighbours(written([("ens1f0", neighbour("", "Eth1", mac="02:5a:00:00:aa:07"))]))
    assert found == {Port("ens1f0"): [Neighbour("02:5a:00:00:aa:07", "Eth1")]}


@FORMATS
def test_neighbour_that_forwards_nothing_is_no_switch(written: Any) -> None:
    """Such as the processor of a network adapter, or a node at the other end of a cable."""
    one = neighbour("dpu-1", "p0", capabilities={"Bridge": False, "Station": True})
    other = neighbour("leaf-1", "Ethernet7", capabilities={})
    found = parse_neighbours(written([("ens1f0", one), ("ens1f0", other)]))
    assert found == {Port("ens1f0"): [LEAF]}


@FORMATS
def test_lldp_is_before_other_protocols(written: Any) -> None:
    other = neighbour("leaf-1.example.net", "Ethernet7", via="CDPv2")
    seen = [("ens1f0", other), ("ens1f0", neighbour("leaf-1", "Ethernet7"))]
    assert parse_neighbours(written(seen))[Port("ens1f0")][0] == LEAF


@pytest.mark.parametrize("text", ["", NO_DAEMON, "{}", "[]", '{"lldp"', "lldp.ens1f0.via=LLDP\n"])
def test_text_without_a_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="document"):
        parse_neighbours(text)


@pytest.mark.parametrize(
    "value", [None, 7, "text", [], [[]], {"a": 1}, [7, {"name": 7, "via": []}]]
)
def test_any_document_is_read(value: object) -> None:
    import json

    for document in ({"lldp": value}, {"lldp": {"interface": value}}):
        assert parse_neighbours(json.dumps(document)) == {}
    for key in ("chassis", "port"):
        parse_neighbours(
            json.dumps({"lldp": [{"interface": [{"name": "a", "via": "LLDP", key: value}]}]})
        )


ADAPTER, OTHER, THIRD = 0x02FE5A0000180001, 0x5A0000200001, 0x02FE5A0000280001
MANAGED = "MF0;leaf-a3:MQM9700/U1"
UNMANAGED = "Quantum Mellanox Technologies"


def test_neighbours_are_found_by_guid() -> None:
    """Also one with leading zeros, which are not printed."""
    links = {ADAPTER: (0x10, 3, MANAGED), OTHER: (0x10, 4, MANAGED), THIRD: (0x10, 5, MANAGED)}
    found = parse_topology(topology(links).encode(), {ADAPTER, OTHER, 7})
    assert found.links == 3
    assert found.neighbours == {
        ADAPTER: Neighbour("leaf-a3", "3"),
        OTHER: Neighbour("leaf-a3", "4"),
    }


def test_switches_with_the_same_description_are_named_by_guid() -> None:
    links = {ADAPTER: (0x10, 3, UNMANAGED), OTHER: (0x11, 4, UNMANAGED), THIRD: (0x12, 5, "rack 4")}
    found = parse_topology(topology(links).encode(), links.keys()).neighbours
    assert found == {
        ADAPTER: Neighbour("0x0000000000000010", "3"),
        OTHER: Neighbour("0x0000000000000011", "4"),
        THIRD: Neighbour("rack 4", "5"),
    }


def test_half_a_topology_has_no_half_names() -> None:
    text = topology(
        {ADAPTER: (0x10, 3, MANAGED), THIRD: (0x11, 5, "MF0;leaf-b1:MQM9700/U1")}
    ).encode()
    names = set()
    for end in range(len(text)):
        found = parse_topology(text[:end], {ADAPTER, THIRD}).neighbours
        names |= {(guid, one) for guid, one in found.items()}
    assert names == {(ADAPTER, Neighbour("leaf-a3", "3")), (THIRD, Neighbour("leaf-b1", "5"))}


@pytest.mark.parametrize(
    "host", ["node-7", "node-7.example.net", "node-[5-9]", "*", "node-?.example.net"]
)
def test_row_of_a_host(host: str) -> None:
    text = f"{HEAD}{host},mlx5_0,1,leaf-1,Ethernet7\nnode-8,mlx5_0,1,leaf-2,Ethernet7\n"
    assert parse_list(text, "node-7.example.net") == {Port("mlx5_0", "1"): LEAF}
    assert bool(parse_list(text, "node-7")) == ("?" not in host)
    assert parse_list(text, "node-77") == ({Port("mlx5_0", "1"): LEAF} if host == "*" else {})


def test_first_row_of_a_port_holds() -> None:
    text = "switch,host,device\nleaf-1,node-7,ens1f0\nleaf-2,*,ens1f0\nleaf-3,*,ens2f0\n"
    assert parse_list(f"# by hand\n\n{text}", "node-7") == {
        Port("ens1f0"): Neighbour("leaf-1"),
        Port("ens2f0"): Neighbour("leaf-3"),
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "half written"),
        ("\n", "empty"),
        (HEAD + "node-7,mlx5_0,1,leaf-1,", "half written"),
        (HEAD + "node-7,mlx5_0,1,leaf-1\n", "line 2: 4 fields, not 5"),
        (HEAD + "node-7,mlx5_0,one,leaf-1,\n", "line 2: no port"),
        (HEAD + "node-7,mlx5 0,1,leaf-1,\n", "line 2: no port"),
        (HEAD + "node-7,mlx5_0/1,,leaf-1,\n", "line 2: no port"),
        (HEAD + "node-7,mlx5_0,1,,\n", "line 2: no name of a switch"),
        (HEAD + f"node-7,mlx5_0,1,{'a' * 129},\n", "line 2: no name of a switch"),
        ("host,device,port\n", "no column switch"),
        ("host,device,switch,rack\n", "column 'rack'"),
        ("host,device,switch,host\n", "column 'host'"),
        (HEAD + f'"{"a" * 200_000}",mlx5_0,1,leaf-1,\n', "not CSV"),
        (HEAD + "n*,mlx5_0,1,leaf-1,\n" * (MAX_PATTERNS + 1), "hosts with wildcards"),
    ],
)
def test_list_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_list(text, "node-7")


def test_port_and_interface_share_a_cable() -> None:
    rdma, interface, other = Port("mlx5_0", "1"), Port("ens1f0"), Neighbour("leaf-2")
    for known in ({rdma: LEAF}, {interface: LEAF}):
        assert spread(known, {rdma: "ens1f0"}, {}) == {rdma: LEAF, interface: LEAF}
    both = {rdma: LEAF, interface: other}
    assert spread(both, {rdma: "ens1f0"}, {}) == both


def test_bond_has_a_switch_where_its_members_have_the_same() -> None:
    rdma, one, two = Port("mlx5_bond_0", "1"), Port("ens1f0"), Port("ens1f1")
    bonds = {"bond0": ("ens1f0", "ens1f1"), "bond1": ()}
    interfaces = {rdma: "bond0"}
    same = {one: Neighbour("leaf-1", "Eth2"), two: Neighbour("leaf-1", "Eth1")}
    both = Neighbour("leaf-1", "Eth1,Eth2")
    assert spread(same, interfaces, bonds) == same | {Port("bond0"): both, rdma: both}
    for known in ({one: LEAF}, {one: LEAF, two: Neighbour("leaf-2", "Eth1")}):
        assert spread(known, interfaces, bonds) == known


@pytest.mark.parametrize("name", ["", "mlx5 0", "mlx5_0/", "mlx5_0/a", "/1", "a/b/1", "mlx5_0/1\n"])
def test_text_that_is_no_port(name: str) -> None:
    assert parse_port(name) is None


def test_settings_that_do_not_fit() -> None:
    settings = SwitchesSettings(
        ports={"mlx5_0/x": "leaf-1", "ens1f0": " "}, ports_file="a.csv", ibnetdiscover="/a\0b"
    )
    paths = [problem.path for problem in settings.problems()]
    assert paths == ["ports.mlx5_0/x", "ports.ens1f0", "ports_file", "ibnetdiscover"]
