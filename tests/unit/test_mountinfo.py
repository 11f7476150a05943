"""mountinfo: what is mounted where, in the kernel's format."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.mounts.mountinfo import Mount, find_mount, mount_ids, parse_mountinfo

TEXT = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
30 22 0:45 / /data rw,nosuid shared:5 master:1 - nfs4 filer-1:/export rw,vers=4.2,hard
31 22 0:46 / /with\\040space\\011and\\134back rw - xfs /dev/sdb ro,noquota
32 22 0:47 / /models ro,relatime - lustre 10.0.0.1@o2ib:/fs rw
33 30 0:48 / /data rw - tmpfs none rw
"""


def test_fields_of_each_line_are_parsed() -> None:
    mounts = parse_mountinfo(TEXT)
    assert mounts[0] == Mount("/", "ext4", "/dev/nvme0n1p2", read_only=False, identity=22)
    strange = "/with space\tand\\back"
    assert mounts[2] == Mount(strange, "xfs", "/dev/sdb", read_only=True, identity=31)
    lustre = Mount("/models", "lustre", "10.0.0.1@o2ib:/fs", read_only=True, identity=32)
    assert mounts[3] == lustre


def test_topmost_mount_is_found() -> None:
    found = find_mount(parse_mountinfo(TEXT), "/data")
    assert found is not None
    assert found.fstype == "tmpfs"
    assert find_mount(parse_mountinfo(TEXT), "/dat") is None


def test_everything_that_is_mounted_at_a_mount_point_is_identified() -> None:
    assert mount_ids(parse_mountinfo(TEXT), "/data") == {30, 33}
    assert mount_ids(parse_mountinfo(TEXT), "/dat") == frozenset()
    assert parse_mountinfo(TEXT.replace("30 22", "9" * 5000 + " 22"))[1].identity == 31


@given(st.text())
def test_any_text_is_parsed_without_error(text: str) -> None:
    parse_mountinfo(text)


def test_truncated_line_is_skipped() -> None:
    for length in range(len(TEXT)):
        for mount in parse_mountinfo(TEXT[:length]):
            assert mount.mountpoint.startswith("/")
