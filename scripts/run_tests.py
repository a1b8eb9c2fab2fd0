#!/usr/bin/env python3
"""Runs all test programs, for `make test`. The arguments are cargo's.

Those that talk in real time run one after another: two of them at once hear each other's load. The rest fills what they
leave of the machine, which works while a test waits for a client. Each of its two queues keeps to cores of its own: a
model that computes on two cores which others have taken mostly waits for itself. The desktop's tests come last and have
the machine for themselves, also its disk: a loudspeaker that stutters is an echo that nobody can cancel. Each queue's
results are printed in one piece. At the end, all failures are printed again, and each program's result.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading

# The programs of each group, and the threads of each program if not one per core: most tests over sockets wait.
ALONE = (["--test", "desktop"], None)
IN_REAL_TIME = [
    (["--test", "playground", "--test", "soak"], None),
    (["--test", "wire"], 6),
]
QUICK_PARTS = ["cli::", "model_servers::"]
# Queues of groups that are about as long, and the threads of each program. A group may be some of a program's tests.
BESIDE = [
    ([["--lib"], ["--test", "parts", "--", *QUICK_PARTS]], 2),
    ([["--test", "parts", "--", *(word for name in QUICK_PARTS for word in ("--skip", name))]], 2),
]
NICE = 19


class Results:
    """What the test programs print: passed on, and the failures and results kept for the end."""

    def __init__(self):
        self.failures = []
        self.results = []
        self.in_failures = False

    def write(self, line):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        if line.startswith(b"---- ") and line.endswith(b" ----\n"):
            self.in_failures = True
        elif line == b"failures:\n":
            self.in_failures = False
        elif line.startswith(b"test result: "):
            self.in_failures = False
            self.results.append(line)
        if self.in_failures:
            self.failures.append(line)

    def write_again(self):
        sys.stdout.buffer.writelines([b"\n", *self.failures, *self.results])
        sys.stdout.buffer.flush()


def start(command, threads, out):
    environment = dict(os.environ)
    if threads:
        threads = max(threads, len(os.sched_getaffinity(0)))
        environment.setdefault("RUST_TEST_THREADS", str(threads))
    # Not a session of its own: Linux weighs sessions alike, whatever their niceness.
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, preexec_fn=os.setpgrp)


def one_after_another(commands):
    """A command that runs all of these, and fails if one does."""
    runs = [f"{shlex.join(command)} || failed=1" for command in commands]
    return ["sh", "-c", "; ".join(["failed=0", *runs, "exit $failed"])]


def run_aloud(command, threads, running, results):
    """Prints what the command prints while it runs. Whether it failed."""
    run = start(command, threads, subprocess.PIPE)
    running.append(run)
    reader = threading.Thread(target=lambda: [results.write(line) for line in run.stdout], daemon=True)
    reader.start()
    failed = run.wait() != 0
    # A program that a test left behind may hold the pipe open for ever.
    reader.join(5)
    return failed


def stop(running):
    for run in running:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGTERM)


def main():
    cargo = ["cargo", "test", *sys.argv[1:]]
    subprocess.run([*cargo, "--lib", "--tests", "--no-run"], check=True)
    cargo.append("--no-fail-fast")
    results = Results()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cores = sorted(os.sched_getaffinity(0))
    running = []
    failed = False
    try:
        with contextlib.ExitStack() as files:
            queues = []
            for place, (groups, threads) in enumerate(BESIDE):
                share = cores[place :: len(BESIDE)] or cores
                limits = ["taskset", "-c", ",".join(map(str, share)), "nice", "-n", str(NICE)]
                queue = one_after_another([*limits, *cargo, *group] for group in groups)
                out = files.enter_context(tempfile.TemporaryFile())
                queues.append((start(queue, threads, out), out))
                running.append(queues[-1][0])
            for programs, threads in IN_REAL_TIME:
                failed |= run_aloud([*cargo, *programs], threads, running, results)
            for queue, out in queues:
                failed |= queue.wait() != 0
                out.seek(0)
                for line in out:
                    results.write(line)
            # What was compiled is on the disk before anybody listens.
            os.sync()
            programs, threads = ALONE
            failed |= run_aloud([*cargo, *programs], threads, running, results)
    finally:
        stop(running)
    results.write_again()
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
