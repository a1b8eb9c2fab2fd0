"""One conversation with an open microphone, the same for every Python client: a question for a server
tool, one for a client tool, a barge-in, and a typed message. Each step lasts until all is quiet. The
report lists everything said, every call and every complaint."""

import asyncio
import base64
import json
import logging
import sys
import time
from pathlib import Path

FRAME_MS = 20
BYTES_PER_MS = 48
FRAME = FRAME_MS * BYTES_PER_MS
# How much audio is sent without an event in return before a step counts as over.
QUIET_MS = 2_500
# How much of an answer is heard before the barge-in.
HEARD_MS = 1_200
PATIENCE = 300

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


class Complaints(logging.Handler):
    """Collects a library's warnings."""

    def __init__(self, complaints):
        super().__init__(logging.WARNING)
        self.complaints = complaints

    def emit(self, record):
        self.complaints.append(f"{record.name}: {record.getMessage()}")


class Conversation:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.calls, self.complaints, self.steps = [], [], []
        # Codes of errors that the client causes and ignores.
        self.forgiven = set()
        self.speech = b""
        self.sent_ms = self.last_event = self.open = 0
        logging.getLogger().addHandler(Complaints(self.complaints))

    def weather(self, city):
        """The client's tool."""
        self.calls.append({"city": city})
        return {"degrees": 21}

    def event(self, event):
        """Takes every server event, as a dict."""
        kind = event["type"]
        if kind == "error" and event["error"]["code"] in self.forgiven:
            pass
        elif kind == "error":
            self.complaints.append(json.dumps(event["error"]))
        elif "mcp" in kind:
            self.complaints.append(kind)
        elif kind == "response.created":
            self.begins()
        elif kind == "response.done":
            self.ends(event["response"])
        elif kind == "response.output_audio.delta":
            self.speaks(len(base64.b64decode(event["delta"])) / BYTES_PER_MS)
        elif kind == "response.output_audio_transcript.done":
            self.step["said"].append(event["transcript"])
        elif kind == "conversation.item.input_audio_transcription.completed":
            self.step["heard"].append(event["transcript"])
        self.last_event = self.sent_ms

    def begins(self):
        self.open += 1
        self.last_event = self.sent_ms

    def ends(self, response):
        self.open -= 1
        self.step["responses"].append(response["status"])
        messages = [item for item in response["output"] or [] if item["type"] == "message"]
        # LiveKit speaks the first alone.
        if len(messages) > 1:
            self.complaints.append(f"several messages in a response: {json.dumps(messages)}")
        self.last_event = self.sent_ms

    def speaks(self, ms):
        self.step["audio_ms"] += ms
        self.last_event = self.sent_ms

    @property
    def step(self):
        if not self.steps:
            self.begin("")
        return self.steps[-1]

    def begin(self, name):
        step = {"name": name, "heard": [], "said": [], "responses": [], "audio_ms": 0}
        self.steps.append(step)
        self.last_event = self.sent_ms

    def say(self, name):
        self.speech += (self.folder / f"{name}.pcm").read_bytes()

    async def microphone(self, send):
        """Sends speech or silence in real time."""
        began = time.monotonic()
        while True:
            while self.sent_ms < (time.monotonic() - began) * 1000:
                frame, self.speech = self.speech[:FRAME], self.speech[FRAME:]
                await send(frame.ljust(FRAME, b"\0"))
                self.sent_ms += FRAME_MS
            await asyncio.sleep(FRAME_MS / 2000)

    async def until(self, what, holds):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise SystemExit(f"no {what}: {self.report(None)}")
            await asyncio.sleep(FRAME_MS / 2000)

    async def quiet(self, responses):
        """Ends when the step's responses are done and all has been quiet."""

        def is_quiet():
            return (
                len(self.step["responses"]) >= responses
                and self.open == 0
                and not self.speech
                and self.sent_ms >= self.last_event + QUIET_MS
            )

        await self.until(f"end of {self.step['name']}", is_quiet)

    async def run(self, send, type_text, history):
        """Holds the conversation and prints the report. `send` takes 20 ms of mono PCM16LE at 24 kHz,
        `type_text` a text; `history` returns the client's history at the end."""
        microphone = asyncio.create_task(self.microphone(send))
        self.begin("sum")
        self.say("sum")
        await self.quiet(1)
        self.begin("weather")
        self.say("weather")
        await self.quiet(2)
        self.begin("interruption")
        self.say("abilities")
        step = self.step
        await self.until("answer to interrupt", lambda: step["audio_ms"] >= HEARD_MS)
        self.say("plus")
        await self.quiet(2)
        self.begin("text")
        await type_text("What is 5 plus 6?")
        await self.quiet(1)
        microphone.cancel()
        print(self.report(history()))
        sys.stdout.flush()

    def report(self, history):
        return json.dumps(
            {
                "steps": self.steps,
                "calls": self.calls,
                "complaints": self.complaints,
                "history": history,
            }
        )
