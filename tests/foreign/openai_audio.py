"""The audio API of the openai package. `openai_audio.py URL`: prints what it got."""

import asyncio
import io
import json
import sys
import wave

from openai import AsyncOpenAI, BadRequestError

TEXT = "The next train to Boston leaves at nine. Platform four is on the left."


async def main(url):
    client = AsyncOpenAI(api_key="sk-test", base_url=url, max_retries=0)
    spoken = await client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT)
    recording = spoken.content
    audio = wave.open(io.BytesIO(recording))
    report = {
        "kind": spoken.response.headers["content-type"],
        "form": [audio.getnchannels(), audio.getsampwidth(), audio.getframerate()],
        # The header of a stream tells no length.
        "seconds": len(audio.readframes(10**9)) / 48_000,
        "pieces": 0,
        "bytes": 0,
    }
    streaming = client.audio.speech.with_streaming_response
    request = {"model": "tts-1", "voice": "nova", "input": TEXT, "response_format": "pcm"}
    async with streaming.create(**request) as answer:
        async for piece in answer.iter_bytes():
            report["pieces"] += 1
            report["bytes"] += len(piece)

    file = ("speech.wav", recording)
    heard = client.audio.transcriptions.create
    report["json"] = (await heard(model="whisper-1", file=file)).text
    report["text"] = await heard(model="whisper-1", file=file, response_format="text")
    verbose = await heard(
        model="whisper-1",
        file=file,
        language="en",
        response_format="verbose_json",
        timestamp_granularities=["segment"],
    )
    report["duration"] = verbose.duration
    report["segments"] = [[part.start, part.end, part.text] for part in verbose.segments]
    deltas, done = "", None
    async for event in await heard(model="whisper-1", file=file, stream=True):
        if event.type == "transcript.text.delta":
            deltas += event.delta
        elif event.type == "transcript.text.done":
            done = event.text
    report["stream"] = [deltas, done]

    async def refused(request):
        try:
            await request
        except BadRequestError as error:
            return error.param
        return None

    report["refused"] = [
        await refused(client.audio.speech.create(model="m", voice="alloy", input="")),
        await refused(client.audio.speech.create(model="m", voice="Nobody", input="Hi.")),
        await refused(
            client.audio.speech.create(model="m", voice="echo", input="Hi.", response_format="mp3")
        ),
        await refused(heard(model="whisper-1", file=file, language="tlh")),
        await refused(heard(model="whisper-1", file=("notes.txt", b"no audio at all"))),
    ]
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
