"""Parameters of checks: what is filled in, what is refused, and what reaches a tool."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from nodevitals.checks import CheckError
from nodevitals.checks.model import CheckRequest, TestRequest
from nodevitals.checks.requests import runs
from nodevitals.checks.requests.allowed_variables import ENVIRONMENT, MCA, problem_of
from nodevitals.checks.requests.collective import environment as variables
from nodevitals.checks.requests.collective import of_request, sweeps, tool_argv
from nodevitals.checks.requests.cost import cost
from nodevitals.checks.requests.parameters import checked, resolve
from nodevitals.checks.requests.presets import PRESETS
from nodevitals.checks.requests.problems import problems
from nodevitals.checks.requests.sizes import MAX_BYTES, MAX_SIZES, parse_sizes, spelled
from nodevitals.probes.fabric import measurement
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.settings.hub import PresetSettings
from testbed.node import ROOT

MEMBERS = [
    Member(name=f"gpu-{number}", host="192.0.2.1", port=9856, labels={"pool": "ab"[number % 2]})
    for number in range(8)
]
PAIR = {"kind": "pair", "nodes": ("gpu-1", "gpu-2")}
RDMA = {"tool": "perftest", "device": "mlx5_0"}
# What no word for a tool may have: it could end it, start another one, or name a file.
FORBIDDEN = re.compile(r"[\s;&|`$()<>\\\"'*?!{}#~\0]|\.\./|^/")


def request(**fields: object) -> CheckRequest:
    return msgspec.convert({**PAIR, **fields}, CheckRequest)


def refusals(**fields: object) -> list[str]:
    return [str(problem) for problem in problems(resolve(request(**fields), PRESETS))]


def test_defaults_are_filled_in_and_resolving_twice_changes_nothing() -> None:
    resolved = checked(request(test=RDMA), PRESETS)
    assert resolved.test == TestRequest(
        tool="perftest", operation="write_bw", device="mlx5_0", sizes="1MiB", iterations=200
    )
    assert resolve(resolved, PRESETS) == resolved
    wanted = checked(request(kind="collective"), PRESETS).test
    assert (wanted.tool, wanted.sizes, wanted.devices_per_node) == ("nccl", "1GiB", 8)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid(name: str) -> None:
    preset = PRESETS[name]
    device = {"device": "mlx5_0"} if preset.test.tool == "perftest" else {}
    resolved = checked(request(kind=preset.kind, preset=name, test=device), PRESETS)
    assert resolved.test.tool == preset.test.tool
    assert cost(resolved).seconds < 3600


def test_fields_of_the_request_override_those_of_the_preset() -> None:
    site = {
        "ours": PresetSettings(
            kind="matrix",
            test=msgspec.convert({**RDMA, "iterations": 5000, "queue_pairs": 8}, TestRequest),
            rounds=4,
            share=0.9,
            expected="400Gb/s",
        )
    }
    test = {"device": "mlx5_7", "seconds": 5}
    resolved = checked(request(kind="matrix", preset="ours", test=test), site)
    assert (resolved.rounds, resolved.share) == (4, 0.9)
    assert resolved.expected_bytes_per_second == 50e9
    assert (resolved.test.device, resolved.test.queue_pairs) == ("mlx5_7", 8)
    assert (resolved.test.seconds, resolved.test.iterations) == (5, None)
    with pytest.raises(CheckError, match="preset: no 'theirs': choose ours"):
        resolve(request(preset="theirs"), site)
    with pytest.raises(CheckError, match="ours is for the kind matrix"):
        resolve(request(kind="collective", preset="ours"), site)


def test_nodes_come_from_names_and_labels_each_once() -> None:
    wanted = request(kind="matrix", nodes=("gpu-3", "gpu-0", "gpu-3"), where={"pool": "a"})
    assert resolve(wanted, PRESETS, MEMBERS).nodes == ("gpu-3", "gpu-0", "gpu-2", "gpu-4", "gpu-6")
    with pytest.raises(CheckError, match="where: no node has 'pool=c'"):
        resolve(request(kind="matrix", where={"pool": "c"}), PRESETS, MEMBERS)
    with pytest.raises(CheckError, match="nodes: 'gpu-9': not on the lists"):
        resolve(request(nodes=("gpu-9", "gpu-1")), PRESETS, MEMBERS)
    with pytest.raises(CheckError, match="where: there are no lists"):
        resolve(request(where={"pool": "a"}), PRESETS)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"nodes": ("a",), "test": RDMA}, "nodes: a pair takes two nodes"),
        ({"nodes": ("a", "b", "c"), "test": RDMA}, "nodes: a pair takes two nodes"),
        ({"nodes": ("a", "a"), "test": RDMA}, "nodes: a pair takes two nodes"),
        ({"kind": "matrix", "nodes": ("a",), "test": RDMA}, "nodes: a matrix takes two"),
        ({"kind": "collective", "nodes": ()}, "nodes: no nodes"),
        (
            {"kind": "matrix", "nodes": [f"n{i}" for i in range(257)], "test": RDMA},
            "rounds: all pairs of 257 nodes are too many",
        ),
        ({"rounds": 3, "test": RDMA}, "rounds: pair has no rounds"),
        ({"test": {"tool": "nccl"}}, "test.tool: pair has no 'nccl'"),
        ({"kind": "collective", "test": RDMA}, "test.tool: collective has no 'perftest'"),
        ({"test": {}}, "test.device: missing"),
        ({"test": {**RDMA, "device": "-d"}}, "test.device: '-d' is no device"),
        ({"test": {**RDMA, "device": "mlx5_0,"}}, "test.device: '' is no device"),
        ({"test": {**RDMA, "device": "mlx5_0;x"}}, "test.device: 'mlx5_0;x' is no device"),
        ({"test": {"tool": "iperf3", "device": "all"}}, "test.device: a node has too many"),
        ({"test": {"tool": "iperf3", "crossed": True}}, "test.crossed: which devices"),
        (
            {"kind": "collective", "test": {"device": "mlx5_*"}},
            "test.device: 'mlx5_*' is no device: write it like mlx5_0",
        ),
        (
            {"test": {**RDMA, "device": ",".join(f"mlx5_{i}" for i in range(9)), "crossed": True}},
            "81 tests of each pair",
        ),
        ({"test": {**RDMA, "operation": "write_bw,tcp"}}, "perftest has no 'tcp'"),
        ({"test": {"tool": "iperf3", "operation": "tcp,tcp"}}, "iperf3 has no 'tcp,tcp'"),
        ({"test": RDMA, "expected_latency_seconds": 2e-6}, "no latency is tested"),
        (
            {"kind": "collective", "expected_latency_seconds": 2e-6},
            "collective has no expected_latency_seconds",
        ),
        ({"test": {**RDMA, "operation": "tcp"}}, "test.operation: perftest has no 'tcp'"),
        ({"test": {**RDMA, "devices_per_node": 8}}, "perftest has no devices_per_node"),
        ({"test": {**RDMA, "environment": {"NCCL_ALGO": "Ring"}}}, "no environment: remove"),
        ({"test": {**RDMA, "mca": {"pml": "ucx"}}}, "test.mca: perftest has no mca"),
        ({"test": {"tool": "iperf3", "gid_index": 3}}, "iperf3 has no gid_index"),
        ({"test": {"tool": "iperf3", "port": 2}}, "iperf3 has no port"),
        ({"test": {"tool": "iperf3", "sizes": "2MiB"}}, "2MiB is over 1MiB"),
        ({"test": {**RDMA, "sizes": "2GiB"}}, "2GiB is over 1GiB"),
        ({"test": {**RDMA, "sizes": "8B..8GiB"}}, "test.sizes: '8B..8GiB' is no size"),
        ({"test": {**RDMA, "iterations": 9, "seconds": 9}}, "either iterations or seconds"),
        ({"test": {**RDMA, "sizes": "1GiB", "iterations": 10**8}}, "over 4 TiB of one size"),
        ({"test": {**RDMA, "operation": "send_lat", "queue_pairs": 2}}, "one queue pair"),
        ({"test": {**RDMA, "operation": "write_lat", "queue_pairs": 2}}, "one queue pair"),
        ({"test": {**RDMA, "operation": "send_lat", "seconds": 2}}, "counts messages"),
        ({"expected_bytes_per_second": 1e-300}, "1e-300 is outside 1 to 1e+15"),
        ({"expected_bytes_per_second": 1e308}, "1e+308 is outside 1 to 1e+15"),
        ({"test": {**RDMA, "gid_index": 65}}, "test.gid_index: perftest has at most 64"),
        (
            {"test": {**RDMA, "operation": "send_lat"}, "expected_bytes_per_second": 1e9},
            "expected_bytes_per_second: a latency test has no rate",
        ),
        ({"kind": "collective", "test": {"seconds": 2}}, "nccl has no seconds"),
        ({"kind": "collective", "test": {"port": 2}}, "a port of which device"),
        ({"kind": "collective", "test": {"tool": "hccl", "device": "x"}}, "hccl has no device"),
        ({"kind": "collective", "test": {"tool": "hccl", "gid_index": 3}}, "hccl has no gid_index"),
        ({"kind": "collective", "test": {"tool": "hccl", "queue_pairs": 64}}, "at most 32"),
        ({"kind": "collective", "test": {"tool": "hccl", "traffic_class": 3}}, "multiple of 4"),
        (
            {"kind": "collective", "test": {"tool": "hccl", "operation": "sendrecv"}},
            "hccl has no 'sendrecv'",
        ),
        (
            {"kind": "collective", "test": {"environment": {"LD_PRELOAD": "x.so"}}},
            "test.environment: 'LD_PRELOAD' is not on the list",
        ),
        (
            {"kind": "collective", "test": {"mca": {"plm_rsh_agent": "sh"}}},
            "test.mca: 'plm_rsh_agent' is not on the list",
        ),
        (
            {
                "kind": "collective",
                "test": {"traffic_class": 8, "environment": {"NCCL_IB_TC": "8"}},
            },
            "NCCL_IB_TC is test.traffic_class too",
        ),
        ({"kind": "node", "test": {"device": "x"}}, "test.device: a check of the kind node"),
        ({"where": {"a": "b" * 300}, "test": RDMA}, "where: a label has over 256"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(fields: dict[str, object], problem: str) -> None:
    fields.setdefault("nodes", ("gpu-1", "gpu-2"))
    wanted = request(**{**fields, "where": {}})
    resolved = msgspec.structs.replace(resolve(wanted, PRESETS), where=fields.get("where", {}))
    found = [str(one) for one in problems(resolved)]
    assert any(problem in text for text in found), found
    assert all("\n" not in text and len(text) < 800 for text in found)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("64KiB", (65536,)),
        ("1MiB, 8B,64KiB,8B", (8, 65536, 1 << 20)),
        ("8B..64B x2", (8, 16, 32, 64)),
        ("8..100 x 3", (8, 24, 72)),
        ("4K..16K \u00d72", (4096, 8192, 16384)),
    ],
)
def test_sizes(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == sizes
    assert parse_sizes(spelled(sizes)) == sizes


def test_the_longest_sweep_fits() -> None:
    assert len(parse_sizes("8B..8GiB x2")) == 31
    for text in ("1B..64GiB x2", "8B..8GiB x1", "8GiB..8B x2", "0", "-8", "8TiB", "8B..", ",", ""):
        with pytest.raises(ValueError, match=r"^[^\n]{1,200}$"):
            parse_sizes(text)


def parsed(text: str) -> tuple[tuple[int, ...], str]:
    try:
        return parse_sizes(text), ""
    except ValueError as error:
        return (), str(error)


@given(st.text(max_size=600) | st.from_regex(r"[0-9]{1,20}[KMG]?(i?B)?(\.\.[0-9]+ ?[x,][0-9]+)?"))
def test_any_text_is_a_bounded_list_of_sizes_or_one_line(text: str) -> None:
    sizes, error = parsed(text)
    assert error.isprintable()
    assert len(error) < 300
    if error:
        return
    assert 1 <= len(sizes) <= MAX_SIZES
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] >= 1
    assert sizes[-1] <= MAX_BYTES


RULES = {**ENVIRONMENT["nccl"], **ENVIRONMENT["hccl"], **MCA}
TEXTS = st.text(max_size=80) | st.text(
    st.sampled_from("abc019 =^,:./-;$`|&\n'\"\\\u0661\0"), max_size=40
)


@settings(max_examples=400)
@given(st.sampled_from(sorted(RULES)), TEXTS)
def test_no_value_that_passes_could_be_anything_else(name: str, value: str) -> None:
    if problem_of(name, value, RULES) is None:
        assert re.fullmatch(r"[a-zA-Z0-9^=][a-zA-Z0-9.,:_=/-]*", value)
        assert len(value) <= 2100
        assert not FORBIDDEN.search(value)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("NCCL_ALGO", ("Ring", "^Tree,NVLS"), ("", "ring;ls", "Ring,")),
        ("NCCL_IB_HCA", ("mlx5_0", "=mlx5_0:1,mlx5_1", "^mlx5_9"), ("-x", "a b", "/dev/x", "a,,b")),
        ("NCCL_IB_TC", ("0", "255"), ("256", "-1", "1e2", "٣", " 1")),
        ("NCCL_SOCKET_IFNAME", ("eth0", "^docker,lo", "=bond0.7"), ("eth0 ", "$(id)")),
        ("HCCL_RDMA_TC", ("132",), ("133", "256")),
        ("btl_tcp_if_include", ("eth0", "192.0.2.0/24,fd00::/8"), ("../x", "/etc", "a/b/c")),
        ("pml", ("ucx", "^ob1,cm"), ("./x.so",)),
    ],
)
def test_values_of_the_allow_lists(name: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    assert [value for value in good if problem_of(name, value, RULES)] == []
    assert [value for value in bad if problem_of(name, value, RULES) is None] == []


def test_page_has_each_allowed_name() -> None:
    page = (ROOT / "docs/fabric.md").read_text()
    listed = page[page.index("### Variables of a collective") :].split("\n### ")[0]
    named = set(re.findall(r"`([a-zA-Z]\w+)`", listed)) - {"environment", "mca"}
    assert named == set(RULES)


def test_nothing_on_the_lists_names_a_program_or_a_file() -> None:
    dangerous = re.compile(r"(?i)agent|path|file|plugin|prefix|dir\b|_lib|preload|args|launch")
    assert [name for name in RULES if dangerous.search(name)] == []


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "tool": st.sampled_from(("perftest", "iperf3", "nccl", "hccl")),
        "operation": st.sampled_from(("write_bw", "send_lat", "tcp", "all_reduce")) | TEXTS,
        "device": st.sampled_from(("mlx5_0", "eth0")) | TEXTS,
        "port": st.integers(1, 255),
        "sizes": st.sampled_from(("8B", "64KiB", "8B..1MiB x4", "8B..8GiB x2")) | TEXTS,
        "iterations": st.integers(5, 100_000_000),
        "seconds": st.integers(1, 600),
        "queue_pairs": st.integers(1, 64),
        "gid_index": st.integers(0, 255),
        "traffic_class": st.integers(0, 255),
        "devices_per_node": st.integers(1, 64),
        "environment": st.dictionaries(st.sampled_from(sorted(RULES)) | TEXTS, TEXTS, max_size=2),
        "mca": st.dictionaries(st.sampled_from(sorted(MCA)) | TEXTS, TEXTS, max_size=2),
    },
)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(("pair", "matrix", "collective")), FIELDS)
def test_only_what_is_allowed_reaches_a_command_line(kind: str, fields: dict[str, object]) -> None:
    wanted = resolve(request(kind=kind, test=fields), PRESETS)
    for problem in problems(wanted):  # without what is refused, the rest must be harmless
        fields.pop(problem.path.removeprefix("test."), None)
    if kind != "collective":
        fields.setdefault("device", "mlx5_0")
    wanted = resolve(request(kind=kind, test=fields), PRESETS)
    if list(problems(wanted)):
        event("refused")
        return
    words = []
    if kind == "collective":
        made = of_request(wanted.test, wanted.nodes)
        words += [word for swept in sweeps(made.sizes) for word in tool_argv(made, swept)[1:]]
        words += [text for pair in (*variables(made).items(), *made.mca.items()) for text in pair]
        assert made.sizes == parse_sizes(wanted.test.sizes)
    else:
        tests = runs.pair_tests(wanted)
        assert [test.message_bytes for test in tests] == list(parse_sizes(wanted.test.sizes))
        for test in tests:
            assert list(test.problems()) == []
            assert test.tool == "iperf3" or (test.gid_index or 0) <= 64
            assert test.queue_pairs == 1 or not test.is_latency
            argv = measurement.argv(test, test.gid_index, 18600, "gpu-2")
            words += argv
            values = [word for word in argv if not word.startswith("-")]
            assert all(re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9._-]*", word) for word in values)
    assert not [word for word in words if FORBIDDEN.search(word)]
    estimated = cost(wanted)
    assert 0 < estimated.seconds < 1e8
    assert estimated.bytes > 0
