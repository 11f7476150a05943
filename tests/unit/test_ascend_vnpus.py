"""`npu-smi info -t info-vnpu` as records."""

from __future__ import annotations

import pytest

from nodevitals.probes.ascend.parsers import GIBIBYTE, Resource, Vnpus, parse_vnpus
from testbed.npus import chip, vnpus


def test_vnpus_and_what_is_left_of_a_chip() -> None:
    divided = chip(0, vnpus={100: "vir02", 101: "vir05_1c_16g"}, vnpu_free=("8/20", "20/64"))
    assert parse_vnpus(vnpus(divided)) == Vnpus(
        count=2,
        templates={100: "vir02", 101: "vir05_1c_16g"},
        ai_cores=Resource(8, 20),
        memory_bytes=Resource(20 * GIBIBYTE, 64 * GIBIBYTE),
    )


def test_undivided_chip_has_no_vnpus() -> None:
    found = parse_vnpus(vnpus(chip(0)))
    assert found is not None
    assert (found.count, found.templates) == (0, {})


@pytest.mark.parametrize("text", ["", vnpus(chip(0, vnpus=None)), "Error parameter of -t\n"])
def test_output_without_a_number_is_unknown(text: str) -> None:
    assert parse_vnpus(text) is None


def test_resources_that_are_not_known_are_missing() -> None:
    unknown = parse_vnpus(vnpus(chip(0, vnpu_free=("NA/NA", "60/64"))))
    assert unknown is not None
    assert unknown.ai_cores is None
    assert unknown.memory_bytes == Resource(60 * GIBIBYTE, 64 * GIBIBYTE)
