#!/usr/bin/env python3
"""Runs the image as an unknown user with a read-only root and without capabilities, asks it a spoken question, and
fails unless the server is ready in time, answers, writes only where it should, and is healthy.

The image needs models: as a layer (build.sh --models), or in a volume, as an option after --:
    contrib/container/check.py -- --volume /srv/models:/usr/share/undertone/models:ro
"""

import argparse
import array
import base64
import http.client
import json
import os
import pathlib
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import wave

USER = "12345:12345"
TOKEN = secrets.token_hex(16)
QUESTION = "What time is it in Tokyo?"
# The server's rate, and 20 ms of it.
RATE, FRAME = 16_000, 640
WRITABLE, PROTECTED = ["/var/lib/undertone"], ["/", "/etc/undertone", "/usr/share/undertone/models"]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--engine", default="podman", help="podman, docker, or either with options (default: podman)")
    options.add_argument("--image", default="undertone:latest")
    options.add_argument("--port", type=int, default=8787, help="a free TCP port of this machine (default: 8787)")
    options.add_argument("--host-network", action="store_true", help="use the host's network instead of a published port")
    options.add_argument("--within", type=float, default=3, help="the longest start, s (default: 3)")
    options.add_argument("run", nargs="*", metavar="-- OPTION", help="further options of `podman run`")
    args = options.parse_args()

    container = Container(args)
    with tempfile.TemporaryDirectory() as folder:
        question = container.say(pathlib.Path(folder))
    try:
        examine(container, question, args)
    except BaseException:
        container.print_log()
        raise
    finally:
        container.remove()


def examine(container, question, args):
    began = time.monotonic()
    container.start()
    container.wait_until_ready(began + 60)
    ready = time.monotonic() - began
    tell("ready", f"{ready:.2f} s after the start")

    answer = ask(args.port, question)
    tell("question", f"{len(question) / 2 / RATE:.1f} s of speech, asked at once")
    tell("heard", answer.heard)
    tell("answered", answer.said)
    tell("first sound", f"{answer.first - answer.end:.2f} s after the question, {answer.first - began:.2f} s after the start")
    check(ready <= args.within, f"the server was not ready within {args.within:g} s")
    check("Tokyo" in answer.heard and "Tokyo" in answer.said, "that is no answer to the question")

    status = dict(line.split(":\t", 1) for line in container.run("cat", "/proc/1/status").splitlines() if ":\t" in line)
    uid, capabilities = status["Uid"].split()[0], int(status["CapEff"], 16)
    tell("user", f"{uid}, capabilities {capabilities:#x}")
    check(uid == USER.split(":")[0] and capabilities == 0, "the server has more rights than it was given")
    for folder in WRITABLE + PROTECTED:
        writes = container.succeeds("sh", "-c", f"f={folder}/.check && : 2>/dev/null > $f && rm $f")
        check(writes == (folder in WRITABLE), f"{folder} {'can' if writes else 'cannot'} be written")
    tell("writable", " ".join(WRITABLE) + "; not " + " ".join(PROTECTED))
    check(container.is_healthy(), "the health check fails")
    tell("health", "the image's check succeeds")

    began = time.monotonic()
    code = container.stop()
    tell("stop", f"{time.monotonic() - began:.2f} s, status {code}")
    check(code == 0, "the server did not stop in order")


def tell(name, text):
    print(f"{name:<12} {text}", flush=True)


def check(holds, problem):
    if not holds:
        sys.exit(f"failed: {problem}")


class Container:
    def __init__(self, args):
        self.engine, self.args = args.engine.split(), args
        self.name = f"undertone-check-{os.getpid()}"

    def call(self, *arguments, **options):
        return subprocess.run([*self.engine, *arguments], text=True, stdin=subprocess.DEVNULL, **options)

    def output(self, *arguments):
        done = self.call(*arguments, stdout=subprocess.PIPE)
        check(done.returncode == 0, f"{' '.join([*self.engine, arguments[0]])} ended with status {done.returncode}")
        return done.stdout.strip()

    def create(self, *arguments):
        return ["run", "--read-only", "--user", USER, "--cap-drop", "all", *arguments, *self.args.run]

    def say(self, folder):
        """The question, spoken by the image itself: PCM16LE at RATE, without the silence after it."""
        folder.chmod(0o777)
        mount = ["--network", "none", "--volume", f"{folder}:/question:Z"]
        self.output(*self.create("--rm", *mount), self.args.image, "say", QUESTION, "--out", "/question/question.wav")
        with wave.open(str(folder / "question.wav")) as file:
            channels, width, rate = file.getparams()[:3]
            check((channels, width) == (1, 2), "`undertone say` wrote something else than mono PCM16")
            samples = array.array("h", file.readframes(file.getnframes()))
        # Linear interpolation is good enough for a recogniser.
        count = len(samples) * RATE // rate
        places = (position * rate / RATE for position in range(count - 1))
        resampled = array.array("h", (
            int(samples[int(place)] + (place % 1) * (samples[min(int(place) + 1, len(samples) - 1)] - samples[int(place)]))
            for place in places
        ))
        while resampled and abs(resampled[-1]) < 300:
            resampled.pop()
        return resampled.tobytes()

    def start(self):
        if self.args.host_network:
            network = ["--network", "host", "--env", f"UNDERTONE_SERVER__PORT={self.args.port}"]
        else:
            network = ["--publish", f"127.0.0.1:{self.args.port}:8787/tcp"]
        token = ["--env", f"UNDERTONE_AUTH_TOKEN={TOKEN}"]
        self.output(*self.create("--detach", "--name", self.name, *token, *network), self.args.image)

    def wait_until_ready(self, deadline):
        while not is_ready(self.args.port):
            check(time.monotonic() < deadline, "the server is not ready after a minute")
            time.sleep(0.02)

    def run(self, *command):
        return self.output("exec", self.name, *command)

    def succeeds(self, *command):
        quiet = subprocess.DEVNULL
        return self.call("exec", self.name, *command, stdout=quiet, stderr=quiet).returncode == 0

    def is_healthy(self):
        """Docker has no command that runs the check at once, so the image's own command is run."""
        config = json.loads(self.output("image", "inspect", self.args.image))[0]
        test = (config.get("Healthcheck") or config["Config"].get("Healthcheck") or {}).get("Test", [])
        check(test[:1] == ["CMD"], "the image has no health check")
        return self.succeeds(*test[1:])

    def stop(self):
        self.call("stop", "--time", "60", self.name, stdout=subprocess.DEVNULL)
        return int(self.output("inspect", "--format", "{{.State.ExitCode}}", self.name))

    def print_log(self):
        self.call("logs", self.name, stdout=sys.stderr)

    def remove(self):
        self.call("rm", "--force", "--volumes", self.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def is_ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Answer:
    heard = said = ""
    first = end = None


def ask(port, question):
    """Speaks the question in real time over a WebSocket at /v1/pcm, and listens until the answer is over."""
    client, answer = WebSocket(port, "/v1/pcm"), Answer()
    over = threading.Event()

    def speak():
        due = time.monotonic()
        frames = [question[at:at + FRAME] for at in range(0, len(question), FRAME)]
        for number in range(30 * 50):
            client.send(frames[number].ljust(FRAME, b"\0") if number < len(frames) else bytes(FRAME))
            if number + 1 == len(frames):
                answer.end = time.monotonic()
            due += 0.02
            if over.wait(max(0, due - time.monotonic())):
                return

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        while not (answer.heard and answer.first and answer.said):
            opcode, payload = client.receive()
            if opcode == 2:
                answer.first = answer.first or time.monotonic()
            elif opcode == 1:
                message = json.loads(payload)
                check(message["type"] != "error", f"the server says {payload.decode()}")
                if message["type"] == "transcript" and message["final"]:
                    setattr(answer, "heard" if message["role"] == "user" else "said", message["text"])
    except TimeoutError:
        sys.exit("failed: no answer within 30 s")
    finally:
        over.set()
        speaker.join()
    return answer


class WebSocket:
    """As much of RFC 6455 as the conversation needs."""

    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.lock = threading.Lock()
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        self.stream = self.socket.makefile("rb")
        status = self.stream.readline()
        check(b" 101 " in status, f"no WebSocket: {status.decode().strip()}")
        while self.stream.readline() not in (b"\r\n", b""):
            pass

    def send(self, payload, opcode=2):
        # A mask of zeros leaves the payload as it is.
        with self.lock:
            self.socket.sendall(struct.pack("!BBH4x", 0x80 | opcode, 0x80 | 126, len(payload)) + payload)

    def receive(self):
        opcode, length = self.stream.read(2)
        if length == 126:
            (length,) = struct.unpack("!H", self.stream.read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self.stream.read(8))
        payload = self.stream.read(length)
        if opcode & 0xF == 8:
            sys.exit(f"failed: the server closed the connection: {payload[2:].decode()}")
        if opcode & 0xF == 9:
            with self.lock:
                self.socket.sendall(struct.pack("!BB4x", 0x8A, 0x80 | len(payload)) + payload)
        return opcode & 0xF, payload


if __name__ == "__main__":
    main()
