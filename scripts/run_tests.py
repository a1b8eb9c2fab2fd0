#!/usr/bin/env python3
"""Runs all test programs, for `make test`. The arguments are cargo's.

Those that talk in real time run one after another: two of them at once hear each other's load. The rest fills what they
leave of the machine, which works while a test waits for a client. The desktop's come last and have the machine for
themselves, also its disk: a loudspeaker that stutters is an echo that nobody can cancel. Each group's results are printed
in one piece.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile

# The programs of each group, and the threads of each program if not one per core: most tests over sockets wait.
ALONE = (["--test", "desktop"], None)
IN_REAL_TIME = [
    (["--test", "playground", "--test", "soak"], None),
    (["--test", "wire"], 6),
]
BESIDE = [
    (["--lib"], None),
    (["--test", "parts"], None),
]
NICE = 19


def start(cargo, programs, threads, niceness, out):
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
    try:
        with contextlib.ExitStack() as files:
            outs = [files.enter_context(tempfile.TemporaryFile()) for _ in BESIDE]
            beside = [start(cargo, *group, NICE, out) for group, out in zip(BESIDE, outs)]
            running += beside
            failed = False
            for group in IN_REAL_TIME:
                running.append(start(cargo, *group, 0, None))
                failed |= running[-1].wait() != 0
            for group, out in zip(beside, outs):
                failed |= group.wait() != 0
                out.seek(0)
                sys.stdout.buffer.write(out.read())
                sys.stdout.buffer.flush()
            # What was compiled is on the disk before anybody listens.
            os.sync()
            running.append(start(cargo, *ALONE, 0, None))
            failed |= running[-1].wait() != 0
    finally:
        stop(running)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
