"""The messages of a target, of its senders the newest ones."""

from __future__ import annotations

from nodevitals import catalogue
from nodevitals.engine.protocol import TargetSpec
from nodevitals.engine.target import MAX_MESSAGES, StateInput, Target
from nodevitals.probe import Timing
from nodevitals.state.journal import Journal


def target(name: str, prompt: bool = False) -> Target:
    """Return a target that is due at 0 s."""
    spec = TargetSpec(
        probe="mounts",
        target=name,
        settings=b"",
        timing=Timing(),
        resident=False,
        persistent=False,
        start_seconds=0.0,
        required=False,
        prompt=prompt,
    )
    return Target(spec, StateInput(Journal(catalogue.all_families(), "boot"), spec), 0.0, 0.0)


def test_messages_wait_for_the_next_run() -> None:
    one = target("one", prompt=True)
    one.deliver("nvidia", b"before")
    assert one.has_news
    assert one.messages() == (b"before",)
    assert not one.has_news
    one.deliver("nvidia", b"during")
    one.answered()
    assert one.has_news
    assert one.messages() == (b"during",)


def test_what_a_sender_repeats_is_no_news() -> None:
    """`nvidia` sends the names of its GPUs after each run; they wait for the receiver's next."""
    one = target("one", prompt=True)
    news = []
    for message in (b"names", b"names", b"an Xid", b"names", b"names"):
        one.deliver("nvidia", message)
        news.append(one.has_news)
        assert one.messages() == (message,)
        one.answered()
    assert news == [True, False, True, True, False]
    one.deliver("another", b"names")
    assert one.has_news
    usual = target("two")
    usual.deliver("nvidia", b"names")
    assert not usual.has_news


def test_sender_that_runs_often_displaces_no_message_of_another() -> None:
    """`profile` runs every two minutes, `nvidia` every second under a lease."""
    one = target("one")
    one.deliver("services", b"units")
    for number in range(60):
        one.deliver("nvidia", str(number).encode())
        if not number:
            one.deliver("node", b"first")
    kept = one.messages()
    assert (b"units" in kept, b"first" in kept, len(kept)) == (True, True, MAX_MESSAGES)
    assert kept[-1] == b"59"
    for number in range(60, 120):  # the run returned no result: its messages are given again
        one.deliver("nvidia", str(number).encode())
    kept = one.messages()
    assert (b"units" in kept, b"first" in kept, len(kept)) == (True, True, MAX_MESSAGES)
    assert kept[-1] == b"119"
