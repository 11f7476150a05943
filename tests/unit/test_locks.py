"""/proc/locks: which process holds a lock, in the kernel's format."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.ascend.runner import parse_holder

TEXT = """\
1: POSIX  ADVISORY  READ 5433 08:01:7864448 128 128
2: FLOCK  ADVISORY  WRITE 2001 00:19:4711 0 EOF
2: -> FLOCK  ADVISORY  WRITE 2002 00:19:4711 0 EOF
3: OFDLCK ADVISORY  READ -1 00:06:1028 0 EOF
4: FLOCK  ADVISORY  WRITE 3001 00:1a:4711 0 EOF
5: POSIX  ADVISORY  WRITE 3568 00:19:4712 0 EOF
6: LEASE  ACTIVE    READ 4000 00:19:4713 0 EOF
"""


def test_holder_is_the_process_with_the_flock_on_the_file() -> None:
    assert parse_holder(TEXT, 0x19, 4711) == 2001
    assert parse_holder(TEXT, 0x1A, 4711) == 3001


def test_other_locks_and_processes_that_wait_are_no_holders() -> None:
    assert parse_holder(TEXT, 0x19, 4712) is None
    assert parse_holder(TEXT, 0x19, 4713) is None
    assert parse_holder(TEXT.replace("2: FLOCK", "2: -> FLOCK"), 0x19, 4711) is None


@given(st.text())
def test_any_text_is_parsed_without_error(text: str) -> None:
    parse_holder(text, 0x19, 4711)
