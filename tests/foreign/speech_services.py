"""The simulator of a speech service. `speech_services.py URL KEY`: prints what the openai package got."""

import asyncio
import io
import json
import sys
import wave

from openai import AsyncOpenAI, AuthenticationError


async def main(url, key):
    client = AsyncOpenAI(api_key=key, base_url=url, max_retries=0)
    recording = io.BytesIO()
    with wave.open(recording, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 16_000))
    heard = client.audio.transcriptions.create
    file = ("speech.wav", recording.getvalue())
    report = {"text": (await heard(model="whisper-1", file=file, language="en")).text}
    pieces = 0
    audio = b""
    request = {"model": "tts-1", "voice": "alloy", "input": "One two three.", "response_format": "pcm"}
    async with client.audio.speech.with_streaming_response.create(**request) as answer:
        async for piece in answer.iter_bytes():
            pieces += 1
            audio += piece
    report["bytes"] = len(audio)
    stranger = AsyncOpenAI(api_key="sk-wrong", base_url=url, max_retries=0)
    try:
        await stranger.audio.speech.create(**request)
    except AuthenticationError as error:
        report["refused"] = error.status_code
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
