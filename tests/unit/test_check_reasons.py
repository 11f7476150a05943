"""The failures that tools print lead to the reason of the check: hardware, harness or workload."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nodevitals.checks.model import CheckRequest, RunResult, TestRequest
from nodevitals.checks.verdicts.reasons import OF_REPORT, reason_of
from nodevitals.checks.verdicts.verdict import verdict_of
from nodevitals.linux.host import Host
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools import PARSERS
from nodevitals.probes.fabric.tools.report import REASONS, Report, failed
from testbed import tooloutput

BUSY = '{"start": {}, "error": "the server is busy running a test. try again later"}'
NO_ROUTE = '{"start": {}, "error": "unable to connect to server: No route to host"}'
REFUSED = '{"start": {}, "error": "unable to connect to server: Connection refused"}'
CLOSED = '{"start": {}, "error": "control socket has closed unexpectedly"}'
CONNECT = "Unable to open file descriptor for socket connection Unable to init the socket\n"
SLOTS = "There are not enough slots available in the system to satisfy the 24\nslots that were\n"
MPIRUN = (
    "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
    "the job to be terminated. The first process to do so was:\n\n  Exit code:    3\n"
)
HCCL = "the minbytes is 4096, maxbytes is 4096, iters is 20, warmup_iters is 5\nhccl interface "
HCCL_FAILED = f"{HCCL}return err ./common/src/hccl_test_common.cc:401, retcode: "
WARN = "gpu-a:4411:4502 [3] transport/net_ib.cc:91 NCCL WARN NET/IB : Got completion from peer "


@pytest.mark.parametrize(
    ("tool", "text", "of_tool", "of_check"),
    [
        ("perftest", f"Couldn't connect to 192.0.2.9:18620\n{CONNECT}", "unreachable", "hardware"),
        (
            "perftest",
            "Address family for hostname not supported for 2001:db8::9\n"
            "Problem in resolving basic address and port\n" + CONNECT,
            "unreachable",
            "harness",
        ),
        (
            "perftest",
            "Failed to modify QP 4711 to RTR\n Unable to Connect the HCA's through the link\n",
            "unreachable",
            "hardware",
        ),
        (
            "perftest",
            (
                " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"
                "scnt=64, ccnt=0\n"
            ),
            "unreachable",
            "hardware",
        ),
        (
            "perftest",
            " Failed status-transport retry counter exceeded (12): wr_id 0\n",
            "unreachable",
            "hardware",
        ),
        (
            "perftest",
            (
                " Failed status 4: wr_id 0 syndrom 0x51\nscnt=96, ccnt=32\n"
                "  Failed to complete run_iter_bw function successfully\n"
            ),
            "harness",
            "harness",
        ),
        (
            "perftest",
            (
                "Completion with error at client\nFailed status 12: wr_id 0 syndrom 0x81\n"
                "Error occurred while running infinitely! aborting ...\nUnexpected CM event\n"
                "Unable to perform rdma_client function\n"
            ),
            "unreachable",
            "hardware",
        ),
        (
            "perftest",
            (
                "ethernet_read_keys: Couldn't read remote address\n"
                " Unable to read to socket/rdma_cm\n"
                " Failed to exchange data between server and clients\n"
            ),
            "unreachable",
            "harness",
        ),
        ("perftest", "\n Found Incompatibility issue with GID types.\n", "no_gid", "harness"),
        ("perftest", "Couldn't listen to port 18620\n", "harness", "harness"),
        ("perftest", " Did not detect devices \n", "no_device", "hardware"),
        ("perftest", "IB device mlx5_9 not found\n", "no_device", "hardware"),
        ("perftest", " Port number 1 state is Down\n", "port_down", "hardware"),
        ("iperf3", BUSY, "peer_busy", "workload"),
        ("iperf3", NO_ROUTE, "unreachable", "hardware"),
        ("iperf3", REFUSED, "unreachable", "harness"),
        ("iperf3", CLOSED, "unreachable", "harness"),
        (
            "nccl",
            (
                "gpu-a: Test NCCL failure common.cu:958 'unhandled system error (run with "
                "NCCL_DEBUG=INFO for details) / '\n .. gpu-a pid 77: Test failure common.cu:842\n"
            ),
            "harness",
            "harness",
        ),
        (
            "nccl",
            (
                "gpu-a: Test NCCL failure common.cu:959 'internal error - please report this issue"
                " to the NCCL developers / '\n"
            ),
            "harness",
            "harness",
        ),
        ("nccl", f"{'-' * 74}\n{SLOTS}{'-' * 74}\n", "harness", "harness"),
        ("nccl", MPIRUN, "harness", "harness"),
        ("nccl", f"{WARN}192.0.2.9<41000> with error 12, opcode 0\n", "unreachable", "hardware"),
        ("nccl", f"{WARN}192.0.2.9<41000> with status=12 opcode=0\n", "unreachable", "hardware"),
        ("nccl", "NCCL WARN Connect to 192.0.2.9<1> failed\n", "unreachable", "hardware"),
        ("nccl", "ssh: connect to host a: No route to host\n", "unreachable", "harness"),
        ("nccl", "bash: line 1: all_reduce_perf: command not found\n", "tool_missing", "harness"),
        ("nccl", "gpu-a: Test timeout (60s) common.cu:512\n", "timeout", "harness"),
        (
            "nccl",
            "gpu-a: Test CUDA failure common.cu:1030 'uncorrectable ECC error encountered'\n",
            "harness",
            "hardware",
        ),
        (
            "nccl",
            (
                "gpu-a: Test NCCL failure common.cu:958 'unhandled cuda error (run with ...) / '\n"
                "gpu-a:77:77 [0] init.cc:12 NCCL WARN Cuda failure 'out of memory'\n"
            ),
            "harness",
            "workload",
        ),
        (
            "nccl",
            tooloutput.nccl(tooloutput.nccl_row(1024, 20.0, 1.5, "3"), footer="3 FAILED"),
            "corruption",
            "hardware",
        ),
        ("hccl", f"{HCCL_FAILED}7 \nThis is an error in init_hcclComm.\n", "harness", "harness"),
        ("hccl", f"{HCCL_FAILED}12 \nThis is an error in init_hcclComm.\n", "harness", "hardware"),
        ("hccl", f"{HCCL_FAILED}9 \nThis is an error in init_hcclComm.\n", "timeout", "harness"),
        ("hccl", tooloutput.hccl_row(1024, 20.0, "failed"), "corruption", "hardware"),
        ("hccl", "", "harness", "harness"),
    ],
)
def test_failure_of_a_tool_has_its_reason(
    tool: str, text: str, of_tool: str, of_check: str
) -> None:
    report = PARSERS[tool](text)
    assert (report.outcome, report.reason) == ("failed", of_tool), report
    assert reason_of(report) == of_check


def test_tags_of_mpirun_within_a_line_are_removed() -> None:
    """Open MPI puts one before each piece that it reads, and stderr is written in pieces."""
    tag = "[1,0]<stderr>:"
    text = f"{tag}timeout: {tag}failed to run command x{tag}: No such file or directory{tag}\n"
    message = "timeout: failed to run command x: No such file or directory"
    assert PARSERS["nccl"](text) == failed("tool_missing", message)
    row = tooloutput.nccl_row(1024, 20.0, 1.5)
    parsed = PARSERS["nccl"](f"[1,0]<stdout>:{row[:30]}[1,0]<stdout>:{row[30:]}")
    assert parsed.rows == PARSERS["nccl"](row).rows != ()


RULE = "-" * 74
NETWORKS = "None of the TCP networks could be found:\n\n  Value given: eth9\n"
INIT = "It looks like orte_init failed for some reason\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{RULE}\n{NETWORKS}{RULE}\n",
            "None of the TCP networks could be found: Value given: eth9",
        ),
        (
            f"{RULE}\n{NETWORKS}{RULE}\n[a:9] ORTE_ERROR_LOG: Not found\n{RULE}\n{INIT}{RULE}\n",
            "None of the TCP networks could be found: Value given: eth9",
        ),
        (f"no luck\n{RULE}\n{INIT}{RULE}\n", f"no luck; {INIT.strip()}"),
        (f"{RULE}\n{NETWORKS}{RULE}\nno luck\n\n", "no luck"),
        (
            "mpirun: Error: unknown option \"--x\"\nType 'mpirun --help' for usage.\n",
            'mpirun: Error: unknown option "--x"',
        ),
        (f"no luck\n{RULE}\n", "no luck"),
        (f"{RULE}\n{RULE}\n", RULE),
        ("", "nothing"),
    ],
)
@pytest.mark.parametrize("tool", ["nccl", "hccl"])
def test_message_has_the_words_of_mpirun(tool: str, text: str, message: str) -> None:
    """And not its lines of dashes, nor where to look for help."""
    assert PARSERS[tool](text).message == f"no result in the output; it ends with: {message}"


def test_missing_network_device_is_a_fault_of_the_request(tmp_path: Path) -> None:
    """And its line, which names the device and the node, is that of the verdict."""
    test = TestSettings(tool="iperf3", operation="tcp", device="eth9")
    report = measurement.problem_of(test, Host(sysfs=str(tmp_path)), "gpu-b")
    assert report is not None
    assert (report.reason, reason_of(report)) == ("no_device", "harness")
    wanted = CheckRequest(
        kind="pair",
        nodes=("gpu-a", "gpu-b"),
        test=TestRequest(tool="iperf3", operation="tcp", device="eth9", sizes="128KiB"),
    )
    verdict = verdict_of(wanted, 1, [RunResult(number=0, nodes=wanted.nodes, reports=(report,))])
    assert verdict.outcome == "unknown"
    shown = msgspec.json.encode(verdict).decode()
    assert '"hardware"' not in shown
    assert "gpu-b has no network device eth9" in shown


def test_every_reason_of_a_report_is_mapped() -> None:
    assert set(OF_REPORT) == set(REASONS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gpu-2: No route to host", "hardware"),
        ("gpu-2: no connection in time", "hardware"),
        ("gpu-2: Connection refused", "harness"),
        ("gpu-2: connection closed", "harness"),
        ("gpu-2: the name service returned no address", "harness"),
    ],
)
def test_what_one_agent_says_of_another_has_its_reason(text: str, reason: str) -> None:
    assert reason_of(failed("unreachable", text)) == reason


def test_report_with_results_has_no_reason() -> None:
    assert reason_of(Report(outcome="ok")) is None
