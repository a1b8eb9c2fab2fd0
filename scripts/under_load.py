#!/usr/bin/env python3
"""Runs each test program several times: idle, next to a busy core, and on one core. Lists failures.

    scripts/under_load.py [--runs 5] [--filter WORDS] [PROGRAM...]

Programs are the names behind `cargo test --test`, and `lib`; all of them by default. The output of each run
is kept in target/under-load. `make flaky` builds what the tests need and runs this.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "target/under-load"
LONGEST = 3600  # seconds for one run
BUSY = ["timeout", str(LONGEST), "sh", "-c", "while :; do :; done"]
CONDITIONS = {"idle": [], "busy": [], "one core": ["taskset", "-c", "0"]}


def programs(wanted):
    """Builds the test programs; returns where each is."""
    build = ["cargo", "test", "--locked", "--features", "desktop", "--no-run"]
    if wanted:
        for name in wanted:
            build += ["--lib"] if name == "lib" else ["--test", name]
    else:
        build += ["--lib", "--tests"]
    told = subprocess.run(build, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if told.returncode:
        sys.exit(told.stderr)
    found = {}
    for source, path in re.findall(r"Executable (\S+|unittests \S+) \((\S+)\)", told.stderr):
        name = pathlib.Path(path).name.rsplit("-", 1)[0]
        name = "lib" if name == "undertone" else name
        found[name] = path
    return found


def run(command, log):
    """Returns the names of the tests that failed, and how long it took."""
    began = time.monotonic()
    with log.open("w") as out:
        try:
            code = subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, timeout=LONGEST).returncode
        except subprocess.TimeoutExpired:
            code = "no end"
    failed = re.findall(r"^test (\S+).* FAILED$", log.read_text(errors="replace"), re.M)
    if code and not failed:
        failed = [f"(the program: {code})"]
    return failed, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each program under each condition")
    parser.add_argument("--filter", help="only tests with this in their names")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    failures = collections.defaultdict(list)
    red = collections.Counter()
    spent = collections.defaultdict(list)
    found = programs(options.programs)
    for condition, prefix in CONDITIONS.items():
        busy = subprocess.Popen(BUSY) if condition == "busy" else None
        try:
            for number in range(1, options.runs + 1):
                for name, path in found.items():
                    log = LOGS / f"{name}-{condition.replace(' ', '-')}-{number}.log"
                    filters = [options.filter] if options.filter else []
                    failed, seconds = run(prefix + [path] + filters, log)
                    spent[name, condition].append(seconds)
                    red[name, condition] += bool(failed)
                    for test in failed:
                        failures[name, test].append(log.relative_to(ROOT))
                    told = ", ".join(failed) or "ok"
                    print(f"{condition:8} {number} {name:12} {seconds:6.0f} s  {told}", flush=True)
        finally:
            if busy:
                busy.terminate()
                busy.wait()
    print("\nruns that failed, and the longest")
    print(f"{'':12}" + "".join(f"{condition:>18}" for condition in CONDITIONS))
    for name in found:
        cells = (
            f"{red[name, condition]} of {options.runs}, {max(spent[name, condition]):.0f} s"
            for condition in CONDITIONS
        )
        print(f"{name:12}" + "".join(f"{cell:>18}" for cell in cells))
    for (name, test), logs in sorted(failures.items()):
        print(f"\n{name} {test}: {len(logs)} times")
        for log in logs:
            print(f"    {log}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
