"""An `ssh` for preflight that checks its arguments; the name of the peer says what it does."""

from __future__ import annotations

import os
import sys
import time

FAILURES = {
    "escapes": "\x1b]0;owned\x07\x1b[2J\x1b[31m" + "x" * 100_000,
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
    place = words.index("--")
    given = os.environ.get("WANTED_OPTIONS", "-F none").split()
    assert words[8:place] == given, words
    assert words[place + 2 :] == ["date", "+%s.%N"], words
    name = words[place + 1]
    if name in FAILURES:
        print(FAILURES[name], file=sys.stderr)
        sys.exit(255)
    if name == "hang":
        time.sleep(600)
    if name == "flood":
        while True:
            sys.stdout.write("0123456789" * 1000)
    if name == "garbage":
        print("Welcome to \x1b[31mgpu\x1b[0m")
        return
    print(f"{time.time() + (90 if name == 'late' else 0):.9f}")
