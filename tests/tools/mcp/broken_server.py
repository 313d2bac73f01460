"""Servers that leave the protocol, without a package: the first argument says when.

Its tool `add` adds; "start" writes no JSON at all, "silent" nothing, "call" answers a call by no JSON, "shape" by a
result of another shape, "audio" by a sound, "leave" ends before it answers, "hang" never answers.
"""

import json
import sys
import time

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}


def answer(request: dict, kind: str) -> dict | None:
    method = request["method"]
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        server = {"name": "broken", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": [{"name": "add", "description": "Add.", "inputSchema": SCHEMA}]}
    if method != "tools/call":
        return None
    numbers = request["params"]["arguments"]
    if kind == "leave" and numbers["a"] == 7:
        sys.exit(3)
    if kind == "hang":
        time.sleep(1000)
    if kind == "call":
        print("no JSON", flush=True)
        return None
    if kind == "shape":
        return {"content": "three"}
    if kind == "audio":
        return {"content": [{"type": "audio", "data": "aaaa", "mimeType": "audio/wav"}]}
    return {"content": [{"type": "text", "text": str(numbers["a"] + numbers["b"])}]}


def main(kind: str) -> None:
    if kind == "silent":
        time.sleep(1000)
    for line in sys.stdin:
        if kind == "start":
            print("ready!", flush=True)
            continue
        request = json.loads(line)
        result = answer(request, kind)
        if result is not None and "id" in request:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
