"""Which runs leave out a GPU whose driver did not return."""

from __future__ import annotations

from nodevitals.probes.nvidia.hung import MOST_RUNS, HungGpus

LISTED = ["GPU-a", "GPU-b"]


def runs_until_tried(hung: HungGpus, interrupted: str) -> int:
    """Return the number of runs that leave `GPU-b` out after one that was ended."""
    count = 0
    while "GPU-b" in hung.begin(LISTED, interrupted):
        interrupted = ""
        count += 1
    return count


def test_hung_gpu_is_tried_after_ever_more_runs() -> None:
    hung = HungGpus()
    found = [runs_until_tried(hung, "GPU-b") for _ in range(7)]
    assert found == [1, 2, 4, 8, 16, 16, 16]
    assert found[-1] == MOST_RUNS


def test_gpu_that_returned_is_read_in_each_run() -> None:
    hung = HungGpus()
    runs_until_tried(hung, "GPU-b")
    hung.returned("GPU-b")
    assert hung.begin(LISTED, "") == set()
    assert runs_until_tried(hung, "GPU-b") == 1


def test_gpus_hang_independently_and_are_forgotten_when_not_listed() -> None:
    hung = HungGpus()
    assert hung.begin(LISTED, "GPU-a") == {"GPU-a"}
    assert hung.begin(LISTED, "GPU-b") == {"GPU-b"}
    assert set(hung.gpus) == {"GPU-a", "GPU-b"}
    hung.begin(["GPU-b"], "")
    assert set(hung.gpus) == {"GPU-b"}
