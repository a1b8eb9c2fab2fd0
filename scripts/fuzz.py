#!/usr/bin/env python3
"""Runs libFuzzer on the readers of src/fuzzing.rs, one after another, for `make fuzz`.

SECONDS is the time for each, by default 60; the arguments name readers, by default all. It begins with fuzz/seeds/ and
with what earlier runs have found worth keeping in target/fuzz/. Bytes at which a reader panics, or takes more than ten
seconds, are written to fuzz/found/: mend the reader, and keep them as a seed.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = ROOT / "fuzz" / "seeds"
FOUND = ROOT / "fuzz" / "found"
CORPUS = ROOT / "target" / "fuzz"


def built():
    """The fuzzer's path."""
    command = ["cargo", "test", "--locked", "--features", "desktop,fuzzing", "--test", "fuzz", "--no-run"]
    environment = dict(os.environ, RUSTC_WRAPPER=str(ROOT / "scripts" / "rustc-for-fuzzing"))
    done = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True,
    )
    messages = map(json.loads, done.stdout.splitlines())
    made = [m["executable"] for m in messages if m.get("target", {}).get("name") == "fuzz" and m.get("executable")]
    return made[-1]


def corpus_of(name):
    """The folder of a reader's corpus, with the seeds."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    for seed in sorted((SEEDS / name).iterdir()):
        data = seed.read_bytes()
        if seed.suffix == ".hex":
            data = bytes.fromhex(data.decode())
        (folder / f"seed-{seed.stem}").write_bytes(data)
    return folder


def main():
    seconds = os.environ.get("SECONDS") or "60"
    names = sys.argv[1:] or sorted(path.name for path in SEEDS.iterdir())
    fuzzer = built()
    failed = []
    for name in names:
        found = FOUND / name
        found.mkdir(parents=True, exist_ok=True)
        options = [f"-max_total_time={seconds}", f"-artifact_prefix={found}/", "-timeout=10", "-rss_limit_mb=3000",
                   "-max_len=4096", "-print_final_stats=1", "-verbosity=0"]
        print(f"{name}: {seconds} s", flush=True)
        environment = dict(os.environ, FUZZ_TARGET=name)
        ended = subprocess.run(["nice", "-n", "19", fuzzer, *options, str(corpus_of(name))], env=environment)
        if ended.returncode:
            failed.append(name)
        elif not any(found.iterdir()):
            found.rmdir()
    if failed:
        print(f"failed: {', '.join(failed)}; see fuzz/found/", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
