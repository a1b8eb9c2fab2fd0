"""The simulator of Deepgram's Flux. `deepgram_flux.py ADDRESS KEY`: prints what Deepgram's SDK got."""

import asyncio
import json
import sys

from deepgram import AsyncDeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from deepgram.listen.v2.types.listen_v2connected import ListenV2Connected
from deepgram.listen.v2.types.listen_v2fatal_error import ListenV2FatalError
from deepgram.listen.v2.types.listen_v2turn_info import ListenV2TurnInfo

RATE = 16_000
FRAME = RATE // 50
LOUD = (8_000).to_bytes(2, "little") * FRAME
QUIET = bytes(2 * FRAME)


async def main(address, key):
    places = dict.fromkeys(["production", "agent"], f"ws://{address}")
    rests = dict.fromkeys(["base", "agent_rest"], f"http://{address}")
    environment = DeepgramClientEnvironment(**places, **rests)
    options = {
        "model": "flux-general-en",
        "encoding": "linear16",
        "sample_rate": RATE,
        "eager_eot_threshold": 0.4,
    }

    async def receive(connection):
        message = await asyncio.wait_for(connection.recv(), 30)
        # The SDK itself takes anything. Its models know what Deepgram documents.
        type(message).model_validate(message.dict())
        return message

    client = AsyncDeepgramClient(api_key=key, environment=environment)
    report = {"events": [], "transcripts": []}
    async with client.listen.v2.connect(**options) as connection:
        assert isinstance(await receive(connection), ListenV2Connected)

        async def until(event):
            while True:
                info = await receive(connection)
                assert isinstance(info, ListenV2TurnInfo), info
                if info.event == "Update":
                    continue
                report["events"].append(info.event)
                report["transcripts"].append(info.transcript)
                if info.event == event:
                    return info

        # Two words, a pause, three more, and the end.
        for sound, frames in [(LOUD, 12), (QUIET, 15), (LOUD, 18), (QUIET, 30)]:
            for _ in range(frames):
                await connection.send_media(sound)
        end = await until("EndOfTurn")
        report["turn"] = end.turn_index
        report["last_word"] = end.words[-1].word
        report["trigger"] = end.trigger
        # A turn that is made to end.
        for _ in range(12):
            await connection.send_media(LOUD)
        await connection.send_force_end_turn()
        forced = await until("EndOfTurn")
        report["forced"] = [forced.turn_index, forced.trigger, forced.transcript]
        await connection.send_close_stream()
    async with client.listen.v2.connect(**options) as connection:
        await receive(connection)
        await connection._send({"type": "Nonsense"})
        error = await receive(connection)
        assert isinstance(error, ListenV2FatalError), error
        report["error"] = error.code
    stranger = AsyncDeepgramClient(api_key="wrong", environment=environment)
    try:
        async with stranger.listen.v2.connect(**options):
            pass
    except ApiError as error:
        report["refused"] = error.status_code
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
