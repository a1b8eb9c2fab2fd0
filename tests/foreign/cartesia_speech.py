"""The simulator of Cartesia's voices. `cartesia_speech.py ADDRESS KEY VOICE`: prints what Cartesia's SDK got."""

import asyncio
import json
import sys

from cartesia import AsyncCartesia
from cartesia.types.websocket_response import Chunk, Done, Error, Timestamps


async def main(address, key, voice):
    client = AsyncCartesia(api_key=key, base_url=f"http://{address}", websocket_base_url=f"ws://{address}")
    request = {
        "model_id": "sonic-3",
        "voice": {"mode": "id", "id": voice},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
        "add_timestamps": True,
        "continue": False,
        "context_id": "one",
        "transcript": "One two three.",
    }
    report = {"bytes": 0, "words": [], "ends": []}
    async with client.tts.websocket_connect() as connection:

        async def receive():
            message = await asyncio.wait_for(connection.recv(), 30)
            # The SDK itself takes anything. Its models know what Cartesia documents.
            type(message).model_validate(message.model_dump())
            return message

        await connection.send(request)
        while not isinstance(message := await receive(), Done):
            if isinstance(message, Timestamps):
                report["words"] += message.word_timestamps.words
                report["ends"] += message.word_timestamps.end
            else:
                assert isinstance(message, Chunk), message
                report["bytes"] += len(message.audio)
        await connection.send(request | {"voice": {"mode": "id", "id": "nobody"}, "context_id": "two"})
        message = await receive()
        assert isinstance(message, Error), message
        report["error"] = message.status_code
        await connection.send({"context_id": "one", "cancel": True})
    stranger = AsyncCartesia(api_key="wrong", base_url=f"http://{address}", websocket_base_url=f"ws://{address}")
    try:
        async with stranger.tts.websocket_connect():
            pass
    except Exception as error:
        report["refused"] = str(error)
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
