"""Extracts the Realtime API's fields from the types of the `openai` package, and checks events against them.

    realtime_types.py fields            prints the path of every field that a client may send, one
                                        list for each group, as JSON
    realtime_types.py check FILE        reads events of a server, one JSON object a line, and prints
                                        what is wrong with them: fields that the types do not know,
                                        and values that do not fit
"""

import json
import sys
import typing

import pydantic
from openai.types.realtime import (
    RealtimeClientEvent,
    RealtimeResponseCreateParams,
    RealtimeServerEvent,
    RealtimeSessionCreateRequest,
    RealtimeTranscriptionSessionCreateRequest,
)
from openai.types.realtime.client_secret_create_response import ClientSecretCreateResponse
from openai.types.realtime.conversation_item import ConversationItem

#: Fields with a group of their own; paths elsewhere do not descend into them.
GROUPS = {
    "session": RealtimeSessionCreateRequest,
    "transcription": RealtimeTranscriptionSessionCreateRequest,
    "response": RealtimeResponseCreateParams,
    "item": ConversationItem,
}


#: Fields that OpenAI's own service sends although the types lack them.
SENT_ANYWAY = {
    f"session.{event}.session.{field}"
    for event in ("created", "updated")
    for field in ("expires_at", "id", "object")
}

HEADS = []


def members(annotation):
    """The types in an annotation, without None and Annotated."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return members(typing.get_args(annotation)[0])
    if origin is typing.Union or type(annotation).__name__ == "UnionType":
        return [one for arg in typing.get_args(annotation) for one in members(arg)]
    return [] if annotation is type(None) else [annotation]


HEADS.extend(kind for group in GROUPS.values() for kind in members(group))


def is_model(kind):
    return isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def walk(annotation, path, inside, found):
    """Adds the paths below `path`, whose type is `annotation`; `inside` are the models that
    lead there."""
    for kind in members(annotation):
        if typing.get_origin(kind) is list:
            walk(typing.get_args(kind)[0], path + "[]", inside, found)
        elif is_model(kind) and kind not in inside and not (path and kind in HEADS):
            for name, field in kind.model_fields.items():
                below = ".".join(filter(None, [path, field.alias or name]))
                found.add(below)
                walk(field.annotation, below, [*inside, kind], found)


def fields():
    groups = {}
    for event in members(RealtimeClientEvent):
        found = set()
        walk(event, "", [], found)
        groups[event.model_fields["type"].annotation.__args__[0]] = sorted(found - {"type"})
    for name, group in GROUPS.items():
        found = set()
        walk(group, "", [], found)
        groups[name] = sorted(found)
    return groups


def unknown(value, path):
    """The fields of a parsed value that its type does not define."""
    if isinstance(value, pydantic.BaseModel):
        for name in value.model_extra or {}:
            yield f"{path}.{name}"
        for name in type(value).model_fields:
            yield from unknown(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from unknown(one, f"{path}[{index}]")


#: Numbers with a fraction. Clients in languages with strict types read all others as integers.
FRACTIONS = {"speed", "temperature", "threshold"}


def fractions(value, path, name=""):
    """The paths of the numbers with a fraction in JSON, without those of `FRACTIONS`."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from fractions(one, f"{path}.{name}", name)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from fractions(one, f"{path}[{index}]", name)
    elif isinstance(value, float) and name not in FRACTIONS:
        yield path


def complaints(adapter, event, kind):
    for path in fractions(event, kind):
        yield f"{path}: a number with a fraction"
    try:
        parsed = adapter.validate_python(event, strict=True)
    except pydantic.ValidationError as error:
        for one in error.errors():
            where = ".".join(str(part) for part in one["loc"])
            yield f"{kind}: {where}: {one['msg']}"
        return
    for path in unknown(parsed, kind):
        if path not in SENT_ANYWAY:
            yield f"{path}: not in the types"


def check(file):
    events = {}
    for event in members(RealtimeServerEvent):
        for kind in typing.get_args(event.model_fields["type"].annotation):
            events[kind] = pydantic.TypeAdapter(event)
    events["client_secret"] = pydantic.TypeAdapter(ClientSecretCreateResponse)
    wrong = []
    for line in file:
        event = json.loads(line)
        kind = event.get("type", "client_secret")
        if kind in events:
            wrong.extend(complaints(events[kind], event, kind))
        else:
            wrong.append(f"{kind}: no such event")
    return sorted(set(wrong))


if __name__ == "__main__":
    if sys.argv[1] == "fields":
        print(json.dumps(fields()))
    else:
        with open(sys.argv[2]) as file:
            print(json.dumps(check(file)))
