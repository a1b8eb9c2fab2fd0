#!/usr/bin/env python3
"""Runs all test programs side by side, for `make test`. The arguments are cargo's.

The desktop assistant's tests come first and alone: an echo canceller that gets its samples late hears the
agent. The page plays and records in real time, too, so it comes first on any core. The others get what is then
left: the machine works while a test waits for sound or for a client. Each group's results are printed in one
piece.
"""

import os
import signal
import subprocess
import sys
import tempfile

# The programs of each group, its niceness, and the threads of each program if not one per core: most tests
# over sockets wait.
ALONE = (["--test", "desktop"], 0, None)
THEN = [
    (["--test", "playground", "--test", "soak"], 0, None),
    (["--test", "wire"], 10, 6),
    (["--lib", "--test", "parts"], 19, None),
]


def start(cargo, programs, niceness, threads, out):
    environment = dict(os.environ)
    if threads:
        threads = max(threads, os.cpu_count() or 1)
        environment.setdefault("RUST_TEST_THREADS", str(threads))
    command = ["nice", "-n", str(niceness), *cargo, "--no-fail-fast", *programs]
    # Not a session of its own: Linux weighs sessions alike, whatever their niceness.
    return subprocess.Popen(
        command, stdout=out, stderr=subprocess.STDOUT, env=environment, preexec_fn=os.setpgrp
    )


def stop(running):
    for group in running:
        if group.poll() is None:
            os.killpg(group.pid, signal.SIGTERM)


def main():
    cargo = ["cargo", "test", *sys.argv[1:]]
    subprocess.run([*cargo, "--lib", "--tests", "--no-run"], check=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    running = []

    def begin(group, shown=False):
        out = None if shown else tempfile.TemporaryFile()
        running.append((start(cargo, *group, out), out))
        return running[-1][0]

    try:
        begin(ALONE, shown=True).wait()
        for group in THEN:
            begin(group)
        failed = False
        for process, out in running:
            failed |= process.wait() != 0
            if out:
                out.seek(0)
                sys.stdout.buffer.write(out.read())
                sys.stdout.buffer.flush()
    finally:
        stop([process for process, _ in running])
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
