"""A scripted MCP server over standard input and output, in raw JSON-RPC.

usage: mcp_server.py FOLDER [ARGUMENT...]

FOLDER/tools.json is what it lists, read anew each time; or FOLDER/pages.json, the pages by their cursors. When
FOLDER/changed appears it says that its tools have changed. It appends to FOLDER/log what reaches it: "start" with its
further arguments, "list", "call NAME", "cancel". Until FOLDER/go appears a tool block… keeps it from reading. It refuses
calls of refuse_CODE.
"""

import json
import os
import pathlib
import sys
import threading
import time

folder = pathlib.Path(sys.argv[1])
lock = threading.Lock()


def log(line):
    with open(folder / "log", "a") as file:
        file.write(line + "\n")


def send(message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def watch():
    while True:
        try:
            (folder / "changed").unlink()
            send({"method": "notifications/tools/list_changed"})
        except FileNotFoundError:
            time.sleep(0.01)


def text(text, **more):
    return {"content": [{"type": "text", "text": text}], **more}


def call(name, arguments):
    """The result of a call; None for no answer."""
    if name.startswith("hang"):
        return None
    if name.startswith("block"):
        while not (folder / "go").exists():
            time.sleep(0.01)
    if name.startswith("die"):
        os._exit(1)
    if name.startswith("fail"):
        return text("There is no such customer.", isError=True)
    if name.startswith("image"):
        return {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]}
    if name.startswith("structured"):
        return text("no", structuredContent={"given": arguments, "secret": os.environ.get("CRM_TOKEN")})
    if name.startswith("string"):
        number = arguments["number"]
        string = json.loads((folder / "strings.json").read_text())[number]
        return [
            text(string),
            text("no", structuredContent={"text": string, "list": [string]}),
            text("no", structuredContent={string: 1}),
            text(string, isError=True),
        ][number % 4]
    return text(json.dumps(arguments))


def pages(cursor):
    """One tool a page, unless there are pages."""
    if (folder / "pages.json").exists():
        return json.loads((folder / "pages.json").read_text())[cursor or ""]
    tools = json.loads((folder / "tools.json").read_text())
    at = int(cursor or 0)
    more = {"nextCursor": str(at + 1)} if at + 1 < len(tools) else {}
    return {"tools": tools[at : at + 1], **more}


log(" ".join(["start", *sys.argv[2:]]))
threading.Thread(target=watch, daemon=True).start()
for line in sys.stdin:
    request = json.loads(line)
    method, params = request["method"], request.get("params") or {}
    if method == "notifications/cancelled":
        log("cancel")
    if "id" not in request:
        continue
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "scripted", "version": "1"},
        }
    elif method == "tools/list":
        log("list")
        result = pages(params.get("cursor"))
    elif method == "tools/call":
        log("call " + params["name"])
        kind, _, code = params["name"].partition("_")
        if kind == "refuse":
            error = {"code": -int(code), "message": "The branch must be Mitte or Nord."}
            send({"id": request["id"], "error": error})
            continue
        result = call(params["name"], params.get("arguments"))
    else:
        send({"id": request["id"], "error": {"code": -32601, "message": "no such method"}})
        continue
    if result is not None:
        send({"id": request["id"], "result": result})
