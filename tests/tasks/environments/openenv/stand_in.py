"""What an OpenEnv 0.10 server answers for the game of `guess.py`, by the messages that one was seen to send."""

import asyncio
import json
import random
import threading

from aiohttp import WSMsgType, web

DONE = {"type": "boolean", "default": False}
REWARD = {"anyOf": [{"type": "boolean"}, {"type": "integer"}, {"type": "number"}, {"type": "null"}], "default": None}
METADATA = {"type": "object", "additionalProperties": True}
SCHEMA = {
    "action": {"properties": {"metadata": METADATA, "guess": {"type": "integer"}}, "required": ["guess"]},
    "observation": {"properties": {"done": DONE, "reward": REWARD, "metadata": METADATA, "hint": {"type": "string"}}},
}
NO_NUMBER = "Input should be a valid integer, unable to parse string as an integer"


class Server:
    """A server in a thread of this process.

    Args:
        sessions: at the same time.
        schema: of the environment.
        seeded: whether a reset takes the seed.
    """

    def __init__(self, sessions=3, schema=SCHEMA, seeded=True):
        self.sessions, self.schema, self.seeded = sessions, schema, seeded
        self.open = self.most_open = 0
        self.actions = []
        self.loop, ready = asyncio.new_event_loop(), threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait(10)

    def _run(self, ready):
        app = web.Application()
        app.router.add_get("/schema", self._schema)
        app.router.add_get("/metadata", self._metadata)
        app.router.add_get("/ws", self._session)
        runner = web.AppRunner(app)
        self.loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0, shutdown_timeout=1)
        self.loop.run_until_complete(site.start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        self.loop.run_forever()
        self.loop.run_until_complete(runner.cleanup())
        self.loop.close()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    async def _schema(self, request):
        return web.json_response(self.schema)

    async def _metadata(self, request):
        return web.json_response({"name": "Guess", "description": "Guess a number.", "readme_content": None})

    async def _session(self, request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if self.open >= self.sessions:
            await socket.send_json(
                {"type": "error", "data": {"message": "full", "code": "CAPACITY_REACHED", "max_sessions": 3}}
            )
            return socket
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            number = 0
            async for message in socket:
                if message.type != WSMsgType.TEXT:
                    break
                request = json.loads(message.data)
                if request["type"] == "reset":
                    number = random.Random(request["data"]["seed"] if self.seeded else None).randint(1, 9)
                    first = "a number of 1 to 9" if self.seeded else f"{random.random()}"
                    await socket.send_json(observe(first, None))
                else:
                    self.actions.append(request["data"])
                    await socket.send_json(self._step(request["data"], number))
        finally:
            self.open -= 1
        return socket

    def _step(self, action, number):
        try:
            guess = int(action["guess"])
        except (KeyError, ValueError):
            entry = {"type": "int_parsing", "loc": ["guess"], "msg": NO_NUMBER, "input": action.get("guess")}
            return error("Invalid message", "VALIDATION_ERROR", errors=[entry])
        if guess == 0:
            return error("zero is no number", "EXECUTION_ERROR")
        hint = "larger" if guess < number else "smaller" if guess > number else "right"
        return observe(hint, float(hint == "right"), hint == "right")


def observe(hint, reward, done=False):
    return {
        "type": "observation",
        "data": {"observation": {"metadata": {}, "hint": hint}, "reward": reward, "done": done},
    }


def error(message, code, **more):
    return {"type": "error", "data": {"message": message, "code": code, **more}}
