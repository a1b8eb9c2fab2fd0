"""Acts like Home Assistant over Wyoming, with the client package that it uses. The last line is a report.

home.py PORT info
home.py PORT transcribe FILE.wav
home.py PORT dribble FILE.wav                 in chunks of odd lengths
home.py PORT synthesize FILE.wav TEXT        the voice's audio goes to the file
home.py PORT stream FILE.wav TEXT...         the same of a text in pieces
home.py PORT ask CONVERSATION TEXT...        a connection for each sentence
home.py PORT talk TEXT...                    one connection for all of them
home.py PORT nameless TEXT...                a connection for each sentence, and no name for it: wyoming < 1.7
"""

import asyncio
import json
import sys
import wave

from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop, wav_to_chunks
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.handle import Handled, NotHandled
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

PATIENCE = 60  # seconds for an event


async def event(client):
    read = await client.read_event()
    assert read is not None, "the connection was closed"
    assert not Error.is_type(read.type), Error.from_event(read).text
    return read


async def describe(client):
    await client.write_event(Describe().event())
    answer = await event(client)
    assert Info.is_type(answer.type), answer
    return Info.from_event(answer)


async def info(client):
    services = await describe(client)
    await client.write_event(Ping(text="still there?").event())
    answer = await event(client)
    assert Pong.is_type(answer.type), answer
    (asr,), (tts,), handle = services.asr, services.tts, services.handle
    return {
        "asr": [asr.name, [model.languages for model in asr.models]],
        "tts": [tts.name, [voice.languages for voice in tts.voices], tts.supports_synthesize_streaming],
        "handle": [[program.name, [model.languages for model in program.models]] for program in handle],
        "pong": Pong.from_event(answer).text,
    }


async def transcribe(client, path):
    await client.write_event(Transcribe(language="en-US").event())
    with wave.open(path, "rb") as recording:
        for part in wav_to_chunks(recording, 1024, start_event=True, stop_event=True):
            await client.write_event(part.event())
    answer = await event(client)
    assert Transcript.is_type(answer.type), answer
    return {"text": Transcript.from_event(answer).text}


async def dribble(client, path):
    await client.write_event(Transcribe(language="en").event())
    with wave.open(path, "rb") as recording:
        form = {"rate": recording.getframerate(), "width": 2, "channels": recording.getnchannels()}
        audio = recording.readframes(recording.getnframes())
    await client.write_event(AudioStart(**form).event())
    at, length = 0, 1
    while at < len(audio):
        await client.write_event(AudioChunk(audio=audio[at : at + length], **form).event())
        at, length = at + length, 701 + length % 2_000
    await client.write_event(AudioStop().event())
    answer = await event(client)
    assert Transcript.is_type(answer.type), answer
    return {"text": Transcript.from_event(answer).text}


async def take_audio(client, path, until):
    """Reads up to an event of the class `until`; returns the types, equal neighbours merged."""
    types, first, seconds = [], None, 0.0
    with wave.open(path, "wb") as file:
        while not (types and until.is_type(types[-1])):
            part = await event(client)
            if part.type not in types[-1:]:
                types.append(part.type)
            if AudioStart.is_type(part.type):
                first = AudioStart.from_event(part)
                file.setframerate(first.rate)
                file.setsampwidth(first.width)
                file.setnchannels(first.channels)
            elif AudioChunk.is_type(part.type):
                chunk = AudioChunk.from_event(part)
                assert (chunk.rate, chunk.width, chunk.channels) == (first.rate, first.width, first.channels)
                file.writeframes(chunk.audio)
                seconds += chunk.seconds
    return {"types": types, "rate": first.rate, "seconds": seconds}


async def synthesize(client, path, text):
    (tts,) = (await describe(client)).tts
    voice = SynthesizeVoice(name=tts.voices[0].name)
    await client.write_event(Synthesize(text=text, voice=voice).event())
    return await take_audio(client, path, AudioStop)


async def stream(client, path, *pieces):
    async def write():
        await client.write_event(SynthesizeStart().event())
        for piece in pieces:
            await client.write_event(SynthesizeChunk(text=piece).event())
        # For servers without streaming.
        await client.write_event(Synthesize(text="".join(pieces)).event())
        await client.write_event(SynthesizeStop().event())

    writing = asyncio.ensure_future(write())
    report = await take_audio(client, path, SynthesizeStopped)
    await writing
    return report


async def sentence(client, text, context=None):
    await client.write_event(Transcript(text=text, language="en", context=context).event())
    answer = await event(client)
    if Handled.is_type(answer.type):
        return {"handled": Handled.from_event(answer).text}
    assert NotHandled.is_type(answer.type), answer
    return {"not handled": NotHandled.from_event(answer).text}


async def talk(client, *texts):
    return [await sentence(client, text) for text in texts]


async def ask(port, context, *texts):
    answers = []
    for text in texts:
        async with AsyncTcpClient("127.0.0.1", port, read_timeout=PATIENCE) as client:
            answers.append(await sentence(client, text, context))
    return answers


async def main():
    port, mode, rest = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if mode == "ask":
        conversation, *texts = rest
        report = await ask(port, {"conversation_id": conversation}, *texts)
    elif mode == "nameless":
        report = await ask(port, None, *rest)
    else:
        modes = {f.__name__: f for f in (info, transcribe, dribble, synthesize, stream, talk)}
        async with AsyncTcpClient("127.0.0.1", port, read_timeout=PATIENCE) as client:
            report = await modes[mode](client, *rest)
    print(json.dumps(report))


asyncio.run(main())
