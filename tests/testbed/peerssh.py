"""An `ssh` for preflight that checks its arguments; the name of the peer says what it does."""

from __future__ import annotations

import sys
import time

FAILURES = {
    "denied": "user@denied: Permission denied (publickey).",
    "changed": "Host key verification failed.",
    "down": "ssh: connect to host down port 22: No route to host",
}
OPTIONS = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]


def main(_: str) -> None:
    """One start of `ssh`."""
    words = sys.argv[1:]
    assert words[:4] == OPTIONS, words
    assert words[4] == "-o", words
    assert words[5].startswith("ConnectTimeout="), words
    assert words[6:8] == ["-p", "22"], words
    name = words[words.index("--") + 1]
    assert words[words.index("--") + 2 :] == ["date", "+%s.%N"], words
    if name in FAILURES:
        print(FAILURES[name], file=sys.stderr)
        sys.exit(255)
    if name == "hang":
        time.sleep(600)
    if name == "garbage":
        print("Welcome to \x1b[31mgpu\x1b[0m")
        return
    print(f"{time.time() + (90 if name == 'late' else 0):.9f}")
