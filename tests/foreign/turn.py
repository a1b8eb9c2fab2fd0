"""The openai package as a client: one spoken turn, or one turn with a tool of the client.

Usage: turn.py BASE_URL spoken|tool SPEECH.pcm   (mono PCM16LE, 24 kHz)
Prints one JSON object about what it received.
"""

import asyncio
import base64
import json
import sys

from openai import AsyncOpenAI

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def say(connection, speech):
    return connection.input_audio_buffer.append(audio=base64.b64encode(speech).decode())


async def turn(base_url, with_tool, speech):
    client = AsyncOpenAI(api_key="sk-test", base_url=base_url)
    types, audio_bytes, transcript, calls, responses = [], 0, "", [], 0
    async with client.realtime.connect(model="undertone") as connection:
        session = {"type": "realtime", "instructions": "Be brief."}
        if with_tool:
            session["tools"] = [TOOL]
        await connection.session.update(session=session)
        async for event in connection:
            # The package hands over unknown shapes unparsed: a dict here is a malformed event.
            assert not isinstance(event, dict), event
            if not types or types[-1] != event.type:
                types.append(event.type)
            if event.type == "error":
                raise SystemExit(f"error: {event.error}")
            elif event.type == "session.updated":
                await say(connection, speech)
            elif event.type == "conversation.item.input_audio_transcription.completed":
                transcript = event.transcript
            elif event.type == "response.output_audio.delta":
                audio_bytes += len(base64.b64decode(event.delta))
            elif event.type == "response.function_call_arguments.done":
                calls.append(json.loads(event.arguments))
                await connection.conversation.item.create(
                    item={
                        "type": "function_call_output",
                        "call_id": event.call_id,
                        "output": json.dumps({"degrees": 21}),
                    }
                )
            elif event.type == "response.done":
                responses += 1
                assert event.response.status == "completed", event.response
                if with_tool and responses == 1:
                    await connection.response.create()
                else:
                    break
    return {
        "types": types,
        "audio_bytes": audio_bytes,
        "transcript": transcript,
        "calls": calls,
        "responses": responses,
    }


def main():
    base_url, mode, path = sys.argv[1:]
    with open(path, "rb") as file:
        speech = file.read()
    result = asyncio.run(asyncio.wait_for(turn(base_url, mode == "tool", speech), 40))
    print(json.dumps(result))


main()
