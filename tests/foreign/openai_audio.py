"""The audio API of the openai package, and its tokens for the beta. `openai_audio.py URL`: prints what it got."""

import asyncio
import io
import json
import sys
import wave

from openai import AsyncOpenAI, BadRequestError
from openai.types.audio import TranscriptionVerbose
from openai.types.beta.realtime import SessionCreateResponse, TranscriptionSession

TEXT = "The next train to Boston leaves at nine. Platform four is on the left."


async def main(url):
    client = AsyncOpenAI(api_key="sk-test", base_url=url, max_retries=0)
    speak = client.audio.speech.create
    spoken = await speak(model="tts-1", voice="alloy", input=TEXT, response_format="wav")
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

    default = await speak(model="tts-1", voice="alloy", input="Hi.")
    assert default.response.headers["content-type"] == "audio/mpeg", default.response.headers

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
    # The client itself does not check it.
    TranscriptionVerbose.model_validate(verbose.to_dict())
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
        await refused(speak(model="m", voice="alloy", input="")),
        await refused(speak(model="m", voice="Nobody", input="Hi.")),
        await refused(speak(model="m", voice="echo", input="Hi.", response_format="aac")),
        await refused(heard(model="whisper-1", file=file, language="tlh")),
        await refused(heard(model="whisper-1", file=("notes.txt", b"no audio at all"))),
    ]
    in_list = await refused(heard(model="whisper-1", file=file, languages=["tlh"]))
    assert in_list == "language", in_list

    beta = client.beta.realtime
    session = await beta.sessions.create(instructions="Be brief.", voice="alloy")
    assert SessionCreateResponse.model_validate(session.to_dict()).instructions == "Be brief."
    session = await beta.transcription_sessions.create(input_audio_format="g711_ulaw")
    session = TranscriptionSession.model_validate(session.to_dict())
    assert session.input_audio_format == "g711_ulaw" and session.client_secret.value
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
