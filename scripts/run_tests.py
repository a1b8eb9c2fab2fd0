#!/usr/bin/env python3
"""Runs all test programs, for `make test`. The arguments are cargo's.

Those that talk in real time run one after another: two of them at once hear each other's load. The rest fills what they
leave of the machine, which works while a test waits for a client. Each of its two queues keeps to cores of its own,
because the threads of one model spin while they wait for each other: on cores that others have taken, they waste them.
The desktop's tests come last and have the machine for themselves, also its disk: a loudspeaker that stutters is an echo
that nobody can cancel. Each queue's results are printed in one piece.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading

# The programs of each group, the threads of each program if not one per core (most tests over sockets wait), and which
# of its tests.
ALONE = (["--test", "desktop"], None, [])
IN_REAL_TIME = [
    (["--test", "playground", "--test", "soak"], None, []),
    (["--test", "wire"], 6, []),
]
# Both queues take about as long.
QUICK_PARTS = ["cli::", "model_servers::"]
BESIDE = [
    [(["--lib"], 2, []), (["--test", "parts"], 2, QUICK_PARTS)],
    [(["--test", "parts"], 2, [word for name in QUICK_PARTS for word in ("--skip", name)])],
]
NICE = 19


class Tests:
    """The runs of test programs, and whether one has failed."""

    def __init__(self, cargo):
        self.cargo = cargo
        self.running = set()
        self.failed = False
        self.stopped = False

    def run(self, group, niceness=0, cores=None, out=None):
        programs, threads, tests = group
        cores = cores or os.sched_getaffinity(0)
        environment = dict(os.environ)
        if threads:
            environment.setdefault("RUST_TEST_THREADS", str(max(threads, len(cores))))

        def prepare():
            # Not a session of its own: Linux weighs sessions alike, whatever their niceness.
            os.setpgrp()
            os.sched_setaffinity(0, cores)
            os.nice(niceness)

        command = [*self.cargo, "--no-fail-fast", *programs, "--", *tests]
        run = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, preexec_fn=prepare)
        self.running.add(run)
        self.failed |= run.wait() != 0
        self.running.discard(run)

    def beside(self, queue, cores, out):
        for group in queue:
            if not self.stopped:
                self.run(group, NICE, cores, out)

    def stop(self):
        self.stopped = True
        for run in list(self.running):
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGTERM)


def main():
    cargo = ["cargo", "test", *sys.argv[1:]]
    subprocess.run([*cargo, "--lib", "--tests", "--no-run"], check=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cores = sorted(os.sched_getaffinity(0))
    tests = Tests(cargo)
    try:
        queues = []
        for place, queue in enumerate(BESIDE):
            out = tempfile.TemporaryFile()
            share = set(cores[place :: len(BESIDE)] or cores)
            thread = threading.Thread(target=tests.beside, args=(queue, share, out), daemon=True)
            queues.append((thread, out))
            thread.start()
        for group in IN_REAL_TIME:
            tests.run(group)
        for thread, out in queues:
            thread.join()
            out.seek(0)
            sys.stdout.buffer.write(out.read())
            sys.stdout.buffer.flush()
        # What was compiled is on the disk before anybody listens.
        os.sync()
        tests.run(ALONE)
    finally:
        tests.stop()
    return 1 if tests.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
