"""A server with OpenAI's interface whose model grades a number by itself, with faults on request."""

import contextlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class StubServer:
    """The server, what it was asked, and how it fails.

    Args:
        answer: the reply's text, given the question's text and its mark.
        fault: of request n: None, "broken" (no JSON), "deep" (200,000 brackets), "late", "unreadable", "slow_start"
            (503) or a status.
        late_s: delay of a late answer.
        port: 0 takes a free one.
    """

    def __init__(self, answer, fault=lambda n: None, late_s=1.0, port=0):
        self.answer, self.fault, self.late_s = answer, fault, late_s
        self.requests, self.headers, self._lock = [], [], threading.Lock()
        self.top_logprobs = None
        self._server = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"stub": self}))
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def note(self, body, headers):
        with self._lock:
            self.requests.append(body)
            self.headers.append(dict(headers))
            return len(self.requests) - 1

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # five by default: more at once would be refused


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = self.stub.note(body, self.headers)
        fault = self.stub.fault(number)
        content = body["messages"][0]["content"]
        text = content if isinstance(content, str) else content[-1]["text"]
        mark = re.search(r"end in -([0-9a-f]{8}) ", text)[1]
        if fault == "late":
            time.sleep(self.stub.late_s)
        if isinstance(fault, int):
            return self._send(fault, b"no")
        if fault == "broken":
            return self._send(200, b"<html>bad gateway</html>")
        if fault == "deep":
            return self._send(200, b"[" * 200_000)
        reply = "I would rather not." if fault == "unreadable" else self.stub.answer(text, mark)
        choice = {"message": {"role": "assistant", "content": reply}}
        if body.get("logprobs") and self.stub.top_logprobs is not None:
            choice["logprobs"] = {"content": [{"top_logprobs": self.stub.top_logprobs}]}
        usage = {"prompt_tokens": len(text), "completion_tokens": len(reply)}
        return self._send(200, json.dumps({"choices": [choice], "usage": usage}).encode())

    def _send(self, status, content):
        with contextlib.suppress(OSError):  # a client that no longer waits
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_):
        pass
