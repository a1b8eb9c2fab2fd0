"""The openai-agents package as a client. `openai_agents.py WS_URL FOLDER_OF_SPEECH`"""

import asyncio
import json
import sys

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner
from conversation import Conversation

conversation = Conversation(sys.argv[2])


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return json.dumps(conversation.weather(city))


async def listen(session):
    async for event in session:
        if event.type == "error":
            conversation.complaints.append(f"error: {event.error}")
        elif event.type == "raw_model_event" and event.data.type == "raw_server_event":
            conversation.event(event.data.data)


def history_of(session):
    def words(item):
        return " ".join(getattr(part, "transcript", None) or part.text for part in item.content)

    return [[item.role, words(item)] for item in session._history if item.type == "message"]


async def main(url):
    agent = RealtimeAgent(name="Foreign", instructions="Be brief.", tools=[get_weather])
    runner = RealtimeRunner(starting_agent=agent)
    config = {"url": url, "api_key": "sk-test"}
    async with await runner.run(model_config=config) as session:
        listening = asyncio.create_task(listen(session))
        await conversation.run(session.send_audio, session.send_message, lambda: history_of(session))
        listening.cancel()


asyncio.run(main(sys.argv[1]))
