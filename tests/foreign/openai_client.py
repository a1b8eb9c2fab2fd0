"""The openai package as a client. `openai_client.py HTTP_URL FOLDER_OF_SPEECH`"""

import asyncio
import base64
import json
import sys

from conversation import WEATHER, Conversation
from openai import AsyncOpenAI


async def listen(connection, conversation, history):
    answers = 0
    async for event in connection:
        # The package hands over unknown shapes unparsed: a dict here is a malformed event.
        if isinstance(event, dict):
            conversation.complaints.append(f"malformed: {event}")
            continue
        if event.type == "response.function_call_arguments.done":
            output = conversation.weather(**json.loads(event.arguments))
            await connection.conversation.item.create(
                item={
                    "type": "function_call_output",
                    "call_id": event.call_id,
                    "output": json.dumps(output),
                }
            )
            answers += 1
        elif event.type == "response.done" and answers:
            answers -= 1
            await connection.response.create()
        elif event.type == "response.output_audio_transcript.done":
            history.append(["assistant", event.transcript])
        elif event.type == "conversation.item.input_audio_transcription.completed":
            history.append(["user", event.transcript])
        conversation.event(event.model_dump())


async def main(url, folder):
    conversation, history = Conversation(folder), []
    client = AsyncOpenAI(api_key="sk-test", base_url=url)
    async with client.realtime.connect(model="undertone") as connection:
        session = {"type": "realtime", "instructions": "Be brief.", "tools": [WEATHER]}
        await connection.session.update(session=session)
        listening = asyncio.create_task(listen(connection, conversation, history))

        async def send(frame):
            await connection.input_audio_buffer.append(audio=base64.b64encode(frame).decode())

        async def type_text(text):
            content = [{"type": "input_text", "text": text}]
            item = {"type": "message", "role": "user", "content": content}
            await connection.conversation.item.create(item=item)
            await connection.response.create()

        await conversation.run(send, type_text, lambda: history)
        listening.cancel()


asyncio.run(main(*sys.argv[1:]))
