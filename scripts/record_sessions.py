#!/usr/bin/env python3
"""Records spoken sessions with the real models, to replay after a change to the core.

usage: scripts/record_sessions.py FOLDER [UNDERTONE]   (after `cargo build --release`)
Each dialogue is synthesised and played to `undertone ask --record` in real time: about 20 sessions in FOLDER,
in ten minutes. Numbers are silences in ms, "*" is a cough, other words are spoken.
"""

import array
import random
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RATE = 16_000
DIALOGUES = [
    ["What time is it in Tokyo?"],
    ["What is twelve times seven?", 4_000, "And what is that plus ten?"],
    ["Set a timer for three seconds.", 9_000],
    ["Set a timer for ten minutes.", 5_000, "Cancel the timer.", 5_000, "Yes."],
    ["Hello there!", 700, "What day is it today?"],
    ["What day is it today?", 1_200, "Stop."],
    ["How many miles are a hundred kilometers?", 1_300, "*", 6_000],
    ["*", 2_000, "What is the weather in Boulder?"],
    ["What is the weather in", 700, "Rome today?"],
    ["I do not want the weather in Paris.", 4_000, "What time is it?"],
    ["Add a note buy milk.", 4_000, "Read my notes."],
    ["Add a note call the garage.", 1_000, "No, wait.", 3_000],
    ["What is on my calendar today?", 5_000, "Thank you, goodbye."],
    ["What is the balance of my savings account?", 5_000],
    ["How much are fifty dollars in euros?", 6_000],
    ["Can you tell me a long story about the sea?", 1_500, "Never mind.", 3_000],
    ["What time is it in London?", 900, "And in New York?", 900, "And in Sydney?"],
    ["*", 500, "*", 3_000],
    ["What is the square root of two?", 1_600, "*", 400, "*", 5_000],
    ["Set a timer for", 1_200, "one minute", 600, "please."],
    ["Yes.", 3_000, "No.", 3_000, "What can you do?"],
    ["What are two and two?", 2_500, "What are three and three?", 2_500, "What are four and four?"],
]


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    folder = sys.argv[1]
    program = sys.argv[2] if len(sys.argv) == 3 else ROOT / "target/release/undertone"
    noise = random.Random(1)
    with tempfile.TemporaryDirectory() as scratch:
        for dialogue in DIALOGUES:
            question, answer = Path(scratch) / "question.wav", Path(scratch) / "answer.wav"
            sound = array.array("h")
            for part in dialogue:
                sound.extend(heard(part, program, answer, noise))
            write(question, sound)
            asked = [program, "ask", question, "--out", answer, "--record", folder]
            # Without speech there is no answer, which `ask` reports as an error.
            done = subprocess.run(asked, capture_output=True, text=True)
            print(dialogue, done.stdout or done.stderr, sep="\n", flush=True)


def heard(part, program, scratch, noise):
    if isinstance(part, int):
        return array.array("h", bytes(2 * RATE * part // 1_000))
    if part == "*":
        return array.array("h", (int(noise.gauss(0, 5_000)) for _ in range(RATE // 3)))
    subprocess.run([program, "say", part, "--out", scratch], check=True, capture_output=True)
    with wave.open(str(scratch)) as file:
        rate, samples = file.getframerate(), array.array("h", file.readframes(file.getnframes()))
    return array.array("h", (samples[n * rate // RATE] for n in range(len(samples) * RATE // rate)))


def write(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())


if __name__ == "__main__":
    main()
