"""`make proof`: each part is a benchmark, the tests of one mark `proof`, or both (tests/parts.py).

python -m tests.bench            all parts, one after the other
python -m tests.bench NAME …     these parts
python -m tests.bench --list     the names of all, as JSON; needs nothing but Python
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import parts


def run_tests(name: str) -> bool:
    """Run the tests of one mark. Returns whether all passed."""
    workers = os.environ.get("WORKERS", "2")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        f"--proof={name}",
        "--dist=loadfile",
        "--no-loadscope-reorder",
    ]
    argv.append(f"--tx={workers}*popen//python=tools/test-python")
    return subprocess.run(argv, cwd=ROOT, check=False).returncode == 0


def run_benchmark(name: str) -> None:
    """Run one benchmark of this folder; an exception is its failure."""
    with tempfile.TemporaryDirectory() as folder:
        importlib.import_module(f"bench.{name}").main(Path(folder))


def run_part(name: str) -> int:
    """Run one part. Returns the exit status."""
    print(f"\n## {name}\n", flush=True)
    passed = run_tests(name) if name in parts.MARKS else True
    if name in parts.benchmarks():
        run_benchmark(name)
    return 0 if passed else 1


def main(arguments: list[str]) -> int:
    """Run the parts that are named, all without a name. Returns the exit status."""
    known = parts.names()
    if arguments == ["--list"]:
        print(json.dumps(known))
        return 0
    if unknown := sorted(set(arguments) - set(known)):
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if len(arguments) == 1:
        return run_part(arguments[0])
    # A process each: one that fails leaves the others alone.
    argv = [sys.executable, "-m", "tests.bench"]
    wanted = arguments or known
    failed = [
        name for name in wanted if subprocess.run([*argv, name], check=False, cwd=ROOT).returncode
    ]
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
