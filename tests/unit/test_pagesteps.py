"""The commands and the expected output of a page, as the run on a fresh Debian takes them."""

from __future__ import annotations

import pytest

from bench.first_hour import planned
from bench.pagesteps import missing, steps

PAGE = """\
# Title
text `$ not a command`
## 1. Install
```sh
apt-get install -y pipx
cat >file <<'END'
$ kept
END
```
```yaml
a: 1
```
- in a list
  ```console
  $ nodevitals --version
  nodevitals 0.2.0

  $ true
  ```
## 2. Later
*Not run by our tests: needs a cluster.*

```sh
kubectl apply
```
"""


def test_steps_are_the_shell_fences_in_order() -> None:
    """Headings, commands, expected lines and what is not run; other fences are no steps."""
    install, version, cluster = steps("page.md", PAGE)
    assert (install.heading, install.not_run) == ("1. Install", False)
    assert install.commands == "apt-get install -y pipx\ncat >file <<'END'\n$ kept\nEND\n"
    assert install.expected == []
    assert version.commands == "nodevitals --version\ntrue\n"
    assert version.expected == ["nodevitals 0.2.0"]
    assert (cluster.heading, cluster.not_run) == ("2. Later", True)


def test_a_fence_without_an_end_is_an_error() -> None:
    """Otherwise the rest of the page would not be run."""
    with pytest.raises(AssertionError, match="no end"):
        list(steps("page.md", "```sh\ntrue\n"))


@pytest.mark.parametrize(
    ("expected", "output", "absent"),
    [
        (["a 1", "b"], "x\na   27\ny\nb\n", []),
        (["a", "b"], "b\na\n", ["b"]),
        (["12:30:05 up …, pid 7"], "09:02:11 up 3 days, pid 4711\n", []),
        (["up …"], "it is up 3\n", ["up …"]),
        (["a.c"], "abc\n", ["a.c"]),
        (["…"], "anything\n", []),
        (["0 problems"], "no problems\n", ["0 problems"]),
    ],
)
def test_an_output_has_the_lines_of_the_page(
    expected: list[str], output: str, absent: list[str]
) -> None:
    """In their order; numbers and white space may differ, `…` is any text."""
    assert missing(expected, output) == absent


def test_exactly_only_times_may_differ() -> None:
    shown = ["2026-01-31 16:00:00+00:00  gpu-1  gpu-4"]
    assert missing(shown, "2026-11-28 16:24:13+00:00 gpu-1 gpu-4\n", exact=True) == []
    assert missing(shown, "2026-01-31 16:00:00+00:00 gpu-1 gpu-3\n") == []
    assert missing(shown, "2026-01-31 16:00:00+00:00 gpu-1 gpu-3\n", exact=True) == shown


def test_the_first_hour_is_the_same_in_both_languages() -> None:
    """What runs on a fresh Debian is the English page."""
    english, chinese = planned("docs/first-alert.md"), planned("docs/first-alert.zh.md")
    assert [(step.kind, step.text) for step in chinese] == [
        (step.kind, step.text) for step in english
    ]
    assert any(step.expected for step in english)
