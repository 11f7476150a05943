"""Records of /dev/kmsg: only the kernel's own, each once, with the number of lost records."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodevitals.linux.kmsg import Follower, Record, parse_record


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"4,17,1500000,-;a; b,c", (17, Record(17, 1.5, "a; b,c"))),
        (b"4,17,1500000,-,caller=T12;text", (17, Record(17, 1.5, "text"))),
        (b"6,2,0,c;half of a line", (2, Record(2, 0.0, "half of a line"))),
        (b"4,17,1500000,-;tab\\x09and \\xc3\\xa9", (17, Record(17, 1.5, "tab\tand \u00e9"))),
        (b"4,17,1500000,-;\xff", (17, Record(17, 1.5, "\ufffd"))),
        (b"12,18,1500000,-;from user space", (18, None)),
        (b" SUBSYSTEM=pci", None),
        (b" DEVICE=+pci:0000:18:00.0", None),
        (b"", None),
        (b"text without a head", None),
        (b"-4,17,1500000,-;text", None),
    ],
)
def test_only_records_are_parsed(line: bytes, expected: object) -> None:
    assert parse_record(line) == expected


def test_captured_log_in_a_plain_file_is_followed_by_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"4,5,0,-;one\n DEVICE=x\n4,6,0,-;two\n4,9,0")
    follower = Follower(str(log), sequence=4)
    records, finished = follower.read(100)
    assert ([record.text for record in records], finished) == (["one", "two"], True)
    with log.open("ab") as more:
        more.write(b",-;four\n")
    assert [record.text for record in follower.read(100)[0]] == ["four"]
    assert (follower.sequence, follower.lost) == (9, 2)
    follower.close()


def test_records_that_an_earlier_reader_has_read_are_skipped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"4,%d,0,-;x\n" % number for number in range(10)))
    follower = Follower(str(log), sequence=7)
    assert [record.sequence for record in follower.read(100)[0]] == [8, 9]
    assert follower.lost == 0
    follower.close()
