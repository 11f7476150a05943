"""What bandwidth tools print, with chosen figures. Devices and addresses are invented."""

from __future__ import annotations

import json

LINE = "-" * 87
CPU = "Conflicting CPU frequency values detected: {} != {}. CPU Frequency is not max.\n"
TITLES = {
    "write_bw": "RDMA_Write BW Test",
    "read_bw": "RDMA_Read BW Test",
    "send_bw": "Send BW Test",
    "write_lat": "RDMA_Write Latency Test",
    "send_lat": "Send Latency Test",
    "read_lat": "RDMA_Read Latency Test",
}
WAITING = f"\n{'*' * 36}\n* Waiting for client to connect... *\n{'*' * 36}\n"
UNITS = {"MB/sec": 2**20, "MiB/sec": 2**20, "Gb/sec": 1.25e8}


def perftest_head(operation: str, device: str = "mlx5_2", title: str = "") -> str:
    """Return the lines above the columns."""
    return (
        f"{LINE}\n                    {title or TITLES[operation]}\n"
        f" Dual-port       : OFF\t\tDevice         : {device}\n"
        f" Number of qps   : 1\t\tTransport type : IB\n"
        f" Connection type : RC\t\tUsing SRQ      : OFF\n"
        f" Mtu             : 4096[B]\n Link type       : Ethernet\n GID index       : 5\n"
        f"{LINE}\n"
        f" local address: LID 0000 QPN 0x0134 PSN 0x5ad1c2\n"
        f" GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:00:02:17\n"
        f" remote address: LID 0000 QPN 0x0135 PSN 0x11f6d0\n"
        f" GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:00:02:18\n{LINE}\n"
    )


def bandwidth_row(size: int, iterations: int, average: float, unit: str, peak: float = 0) -> str:
    """One row: figures in the unit, and the message rate that belongs to them."""
    digits = 6 if unit == "Gb/sec" and average < 0.1 else 2
    average = round(average, digits)
    messages = average * UNITS[unit] / size / 1e6
    figures = f"{peak:<16.{digits}f} {average:<16.{digits}f}\t\t   {messages:.6f}"
    return f" {size:<10} {iterations:<15} {figures}\n"


def bandwidth_columns(unit: str) -> str:
    """The header of the rows."""
    return f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n"


def latency_columns() -> str:
    """The header of the rows."""
    return (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
        "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
    )


def latency_row(size: int, iterations: int, *microseconds: float) -> str:
    """One row: minimum, maximum, typical, average, deviation, 99 % and 99.9 %."""
    return f" {size:<7} {iterations:<12} " + "".join(f"{one:<15.2f}" for one in microseconds) + "\n"


def nccl_row(size: int, microseconds: float, factor: float, wrong: str = "0") -> str:
    """One row of all_reduce_perf, both halves alike."""
    algorithm = size / microseconds / 1e3
    half = f"{microseconds:>8.2f} {algorithm:>7.2f} {algorithm * factor:>7.2f} {wrong:>6}"
    return f"{size:>12} {size // 4:>13}     float     sum      -1 {half} {half}\n"


def nccl(rows: str, operation: str = "all_reduce", footer: str = "0 OK") -> str:
    """A whole run."""
    return (
        f"# nccl-tests version 2.17.1 nccl-headers=22807 nccl-library=22807\n"
        f"# Collective test starting: {operation}_perf\n"
        f"# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024 step: 2(factor) iters: 20\n#\n"
        f"# Using devices\n#  Rank  0 Group  0 Pid   4411 on gpu-a device  0 [0000:1b:00] H\n"
        f"#  Rank  1 Group  0 Pid   4412 on gpu-a device  1 [0000:3b:00] H\n#\n"
        f"#       size         count      type   redop    root     time   algbw   busbw  #wrong\n"
        f"{rows}# Out of bounds values : {footer}\n# Avg bus bandwidth    : 12.5\n#\n"
    )


def hccl_row(size: int, microseconds: float, result: str = "success") -> str:
    """One row: its GB/s are GiB/s, as the tool calculates them."""
    gigabytes = size / (microseconds * 1e-6) / 2**30
    return f"{size:<17} | {microseconds:>10.2f}    | {gigabytes:>13.5f}        | {result}\n"


def iperf3(bits_per_second: float, seconds: float = 0.5, retransmits: int = 3) -> str:
    """The JSON of a client."""
    total = round(bits_per_second * seconds / 8)
    rate = total * 8 / seconds
    summary = {"start": 0, "end": seconds, "seconds": seconds, "bytes": total}
    end = {
        "sum_sent": {**summary, "bits_per_second": rate, "retransmits": retransmits},
        "sum_received": {**summary, "bits_per_second": rate},
    }
    start = {"connected": [], "test_start": {"protocol": "TCP", "blksize": 131072}}
    return json.dumps({"start": start, "intervals": [], "end": end}, indent="\t") + "\n"
