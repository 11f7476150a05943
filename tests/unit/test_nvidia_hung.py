"""Which runs leave out a GPU whose driver did not return."""

from __future__ import annotations

import copy

from nodevitals.probes.nvidia.hung import MOST_RUNS, HungGpus

LISTED = ["GPU-a", "GPU-b"]


def runs_until_tried(hung: HungGpus, *interrupted: str) -> int:
    """Return the number of runs that leave `GPU-b` out after one that was ended."""
    count = 0
    while "GPU-b" in hung.begin(LISTED, interrupted):
        interrupted = ()
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
    assert hung.begin(LISTED, []) == set()
    assert runs_until_tried(hung, "GPU-b") == 1


def test_gpus_hang_independently_and_are_forgotten_when_not_listed() -> None:
    hung = HungGpus()
    assert hung.begin(LISTED, ["GPU-a"]) == {"GPU-a"}
    assert hung.begin(LISTED, ["GPU-b"]) == {"GPU-b"}
    assert set(hung.gpus) == {"GPU-a", "GPU-b"}
    hung.begin(["GPU-b"], [])
    assert set(hung.gpus) == {"GPU-b"}


def test_state_of_a_run_that_hangs_is_lost_and_both_gpus_are_left_out() -> None:
    """As the engine does: the state of a run that returns is kept, and until then the places."""
    saved, places, left_out = HungGpus(), set[str](), []
    for _ in range(12):
        state = copy.deepcopy(saved)
        out = state.begin(LISTED, places)
        hangs = [uuid for uuid in LISTED if uuid not in out]
        if hangs:
            places.add(hangs[0])
        else:
            left_out.append(len(out))
            saved, places = state, set()
    assert left_out == [2] * 6
