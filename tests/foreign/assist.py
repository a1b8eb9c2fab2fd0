"""Home Assistant itself, with its own integrations, as a client of undertone. The last line is a report.

Usage: assist.py FOLDER PORT SENTENCE

Starts Home Assistant in FOLDER with nothing but its defaults and a sentence of its own to answer, and
sets it up over its public API, as its pages do: a user, the integration `wyoming` for undertone's PORT,
and a pipeline that hears and speaks with it. Then it has SENTENCE spoken, sends that to the speech-to-text
API in chunks of odd lengths, and runs the pipeline with it twice, as a voice satellite does.
"""

import asyncio
import io
import json
import pathlib
import socket
import sys
import wave

import aiohttp
import imageio_ffmpeg

PATIENCE = 120  # seconds for one thing
RATE = 16_000  # Hz, of what Home Assistant records
MOST_TURNS = 6

CONFIGURATION = """
ffmpeg:
  ffmpeg_bin: {ffmpeg}
http:
  server_host: 127.0.0.1
  server_port: {port}
assist_pipeline:
media_source:
conversation:
  intents:
    GardenTemperature:
      - "[please] (tell me | what is | what's) [the] temperature in [the] garden"
intent_script:
  GardenTemperature:
    speech:
      text: "It is eighteen degrees in the garden."
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Home:
    """Home Assistant's API, as its pages use it."""

    def __init__(self, session, port):
        self.session, self.base = session, f"http://127.0.0.1:{port}"
        self.headers = {}

    async def post(self, path, **body):
        async with self.session.post(self.base + path, headers=self.headers, **body) as answer:
            assert answer.status in (200, 201), (path, answer.status, await answer.text())
            return await answer.json()

    async def get(self, path):
        async with self.session.get(self.base + path, headers=self.headers) as answer:
            assert answer.status == 200, (path, answer.status, await answer.text())
            return await answer.read()

    async def wait_until_up(self, process):
        while True:
            assert process.returncode is None, "Home Assistant has ended"
            try:
                async with self.session.get(self.base + "/api/onboarding") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.5)

    async def log_in(self):
        client = self.base + "/"
        user = {"name": "A", "username": "a", "password": "b", "client_id": client, "language": "en"}
        code = (await self.post("/api/onboarding/users", json=user))["auth_code"]
        grant = {"grant_type": "authorization_code", "code": code, "client_id": client}
        token = (await self.post("/auth/token", data=grant))["access_token"]
        self.headers = {"Authorization": f"Bearer {token}"}
        return token

    async def add_undertone(self, port):
        """Settings, devices and services, add integration: Wyoming."""
        flow = await self.post("/api/config/config_entries/flow", json={"handler": "wyoming"})
        address = {"host": "127.0.0.1", "port": port}
        added = await self.post(f"/api/config/config_entries/flow/{flow['flow_id']}", json=address)
        assert added["type"] == "create_entry", added
        return added["title"]

    async def speak(self, text):
        """Has a text synthesised; returns its samples at a microphone's rate."""
        wanted = {"preferred_format": "wav", "preferred_sample_rate": RATE, "preferred_sample_channels": 1}
        asked = {"engine_id": "tts.undertone", "message": text, "language": "en", "options": wanted}
        spoken = await self.post("/api/tts_get_url", json=asked)
        return samples(await self.get(spoken["path"]))

    async def transcribe(self, audio):
        """Sends audio in chunks of any length, as read from a socket."""
        described = f"format=wav; codec=pcm; sample_rate={RATE}; bit_rate=16; channel=1; language=en"

        async def chunks():
            at, length = 0, 1
            while at < len(audio):
                yield audio[at : at + length]
                at, length = at + length, 701 + length % 2_000

        headers = {**self.headers, "X-Speech-Content": described}
        path = self.base + "/api/stt/stt.undertone"
        async with self.session.post(path, headers=headers, data=chunks()) as answer:
            assert answer.status == 200, (answer.status, await answer.text())
            return await answer.json()


class Socket:
    """Home Assistant's WebSocket API."""

    def __init__(self, socket):
        self.socket, self.id = socket, 0

    async def log_in(self, token):
        assert (await self.socket.receive_json())["type"] == "auth_required"
        await self.socket.send_json({"type": "auth", "access_token": token})
        assert (await self.socket.receive_json())["type"] == "auth_ok"

    async def ask(self, **command):
        self.id += 1
        await self.socket.send_json({"id": self.id, **command})
        answer = await self.socket.receive_json()
        assert answer["success"], answer
        return answer["result"]

    async def run(self, pipeline, audio, conversation):
        """Speaks into a pipeline; returns the data of its events by type."""
        await self.ask(
            type="assist_pipeline/run",
            start_stage="stt",
            end_stage="tts",
            input={"sample_rate": RATE},
            pipeline=pipeline,
            conversation_id=conversation,
        )
        events, handler = {}, b""
        while "run-end" not in events:
            event = (await self.socket.receive_json())["event"]
            assert event["type"] != "error", event
            events[event["type"]] = event["data"]
            if event["type"] == "run-start":
                handler = bytes([event["data"]["runner_data"]["stt_binary_handler_id"]])
            elif event["type"] == "stt-start":
                for at in range(0, len(audio), 2_048):
                    await self.socket.send_bytes(handler + audio[at : at + 2_048])
                await self.socket.send_bytes(handler)
        return events


def samples(file):
    with wave.open(io.BytesIO(file)) as spoken:
        assert (spoken.getsampwidth(), spoken.getnchannels(), spoken.getframerate()) == (2, 1, RATE)
        return spoken.readframes(spoken.getnframes())


async def decoded(file):
    """The samples that Home Assistant's pages would play."""
    command = "-v error -i - -f s16le -ac 1 -ar".split() + [str(RATE), "-"]
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    process = await asyncio.create_subprocess_exec(ffmpeg, *command, **pipes)
    audio, _ = await process.communicate(file)
    assert process.returncode == 0 and audio
    return audio


async def use(home, port, sentence):
    token = await home.log_in()
    title = await home.add_undertone(port)
    states = json.loads(await home.get("/api/states"))
    entities = sorted(s["entity_id"] for s in states if s["entity_id"].endswith(".undertone"))
    async with home.session.ws_connect(home.base + "/api/websocket", max_msg_size=0) as socket:
        api = Socket(socket)
        await api.log_in(token)
        pipeline = await api.ask(
            type="assist_pipeline/pipeline/create",
            name="undertone",
            language="en",
            stt_engine="stt.undertone",
            stt_language="en",
            tts_engine="tts.undertone",
            tts_language="en",
            tts_voice=None,
            conversation_engine="homeassistant",
            conversation_language="en",
            wake_word_entity=None,
            wake_word_id=None,
        )
        turns, conversation = [], None
        # The voice varies, so a misheard sentence is synthesised again.
        while sum(turn["answered"] for turn in turns) < 2 and len(turns) < MOST_TURNS:
            spoken = await home.speak(sentence)
            heard = await home.transcribe(spoken)
            # A pause at the end, since Home Assistant does its own endpointing.
            events = await api.run(pipeline["id"], spoken + bytes(2 * RATE), conversation)
            intent = events["intent-end"]["intent_output"]
            conversation = intent["conversation_id"]
            answer = await decoded(await home.get(events["tts-end"]["tts_output"]["url"]))
            turns.append(
                {
                    "rest": heard["text"],
                    "heard": events["stt-end"]["stt_output"]["text"],
                    "answered": intent["response"]["response_type"] != "error",
                    "said": intent["response"]["speech"]["plain"]["speech"],
                    "heard_back": (await home.transcribe(answer))["text"],
                }
            )
    return {"title": title, "entities": entities, "turns": turns}


async def main(folder, port, sentence):
    api = free_port()
    folder = pathlib.Path(folder)
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    (folder / "configuration.yaml").write_text(CONFIGURATION.format(port=api, ffmpeg=ffmpeg))
    hass = pathlib.Path(sys.executable).with_name("hass")
    with open(folder / "output.log", "wb") as output:
        process = await asyncio.create_subprocess_exec(
            # Its requirements are installed, so it must not download anything.
            hass, "--config", folder, "--skip-pip", stdout=output, stderr=output
        )
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as session:
            home = Home(session, api)
            await asyncio.wait_for(home.wait_until_up(process), PATIENCE)
            report = await use(home, port, sentence)
    except BaseException:
        print((folder / "output.log").read_text()[-8_000:], file=sys.stderr)
        raise
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()
    print(json.dumps(report))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
