#!/usr/bin/env python3
"""Asks spoken questions through the whole pipeline and prints the latency from the end of speech.

usage: scripts/latency.py [ROUNDS [UNDERTONE]]   (by default of `cargo build --release`)
The questions are synthesised, and `undertone ask` plays each in real time. Prints the median of every
stage, in ms after the last speech that the voice activity detector found, and each stage's share of the wait.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

UNDERTONE = sys.argv[2] if len(sys.argv) > 2 else Path(__file__).resolve().parent.parent / "target/release/undertone"
QUESTIONS = [
    "What time is it in Tokyo?",
    "What is twelve times seven?",
    "Set a timer for ten minutes.",
    "Hello there!",
    "What day is it today?",
]
STAGES = ["transcript", "completeness", "end_of_turn", "llm_first", "first_synthesis", "first_audio"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    waits = {stage: [] for stage in STAGES}
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(QUESTIONS):
            question = Path(folder) / f"{number}.wav"
            run("say", text, "--out", question)
            for _ in range(rounds):
                answer = json.loads(run("ask", question, "--out", Path(folder) / "answer.wav", "--json"))
                note(answer["turns"][-1], waits)
    total = statistics.median(waits["first_audio"])
    for stage, values in waits.items():
        if not values:
            continue
        median = statistics.median(values)
        print(f"{stage:16} p50 {median:5.0f} ms  max {max(values):5.0f} ms  {median / total:4.0%} of the wait")


def note(turn, waits):
    for stage, values in waits.items():
        # A turn may end before Smart Turn has scored it.
        if turn[stage] is not None:
            values.append((turn[stage] - turn["speech_end"]) / 1000)


def run(*arguments):
    return subprocess.run([UNDERTONE, *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
