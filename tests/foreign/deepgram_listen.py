"""The simulator of Deepgram's recogniser. `deepgram_listen.py ADDRESS KEY`: prints what Deepgram's SDK got."""

import asyncio
import json
import sys

from deepgram import AsyncDeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from deepgram.listen.v1.types.listen_v1metadata import ListenV1Metadata
from deepgram.listen.v1.types.listen_v1results import ListenV1Results

RATE = 16_000
LOUD = (8_000).to_bytes(2, "little")


async def main(address, key):
    places = dict.fromkeys(["production", "agent"], f"ws://{address}")
    rests = dict.fromkeys(["base", "agent_rest"], f"http://{address}")
    environment = DeepgramClientEnvironment(**places, **rests)
    options = {
        "model": "nova-3",
        "encoding": "linear16",
        "sample_rate": RATE,
        "interim_results": "true",
        "endpointing": "false",
        "language": "en",
    }

    async def receive(connection):
        message = await asyncio.wait_for(connection.recv(), 30)
        # The SDK itself takes anything. Its models know what Deepgram documents.
        type(message).model_validate(message.dict())
        return message

    client = AsyncDeepgramClient(api_key=key, environment=environment)
    report = {"interim": 0}
    async with client.listen.v1.connect(**options) as connection:
        await connection.send_keep_alive()
        for _ in range(30):
            await connection.send_media(LOUD * (RATE // 50))
        await connection.send_finalize()
        while not (result := await receive(connection)).from_finalize:
            assert isinstance(result, ListenV1Results), result
            report["interim"] += not result.is_final
        best = result.channel.alternatives[0]
        report["final"] = best.transcript
        report["last_word_ends"] = best.words[-1].end
        await connection.send_close_stream()
        while isinstance(message := await receive(connection), ListenV1Results):
            pass
        assert isinstance(message, ListenV1Metadata), message
        report["seconds"] = message.duration
    stranger = AsyncDeepgramClient(api_key="wrong", environment=environment)
    try:
        async with stranger.listen.v1.connect(**options):
            pass
    except ApiError as error:
        report["refused"] = error.status_code
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
