"""A server with OpenAI's completions endpoint in this process, whose model is a text policy."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch


class Completions:
    """Answers of a policy, as vLLM's server gives them.

    Args:
        policy: the teacher.
        statuses: of the first requests, before any is answered.
        without: fields that the server does not know.
    """

    def __init__(self, policy, statuses=(), without=()):
        self.policy, self.statuses, self.without = policy, list(statuses), without
        self.bodies, self.headers, self.running, self.most = [], [], 0, 0
        self.lock = threading.Lock()

    @torch.no_grad()
    def answer(self, body):
        tokenizer, prompt = self.policy.tokenizer, body["prompt"]
        ids = tokenizer.encode(prompt, add_special_tokens=False) if isinstance(prompt, str) else prompt
        with self.lock:
            logprobs = self.policy.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        choice = {"text": "?", "finish_reason": "length"}
        if "prompt_logprobs" in body:
            count = body["prompt_logprobs"] if body["prompt_logprobs"] > 0 else logprobs.shape[-1]
            places = [{*row.topk(count).indices.tolist(), token} for row, token in zip(logprobs, ids[1:])]
            choice["prompt_logprobs"] = [None] + [
                {str(i): {"logprob": float(row[i])} for i in place} for row, place in zip(logprobs, places)
            ]
        if body.get("echo"):
            scores = [None, *logprobs[:-1].gather(1, torch.tensor(ids)[1:, None])[:, 0].tolist(), -1.0]
            choice["logprobs"] = {"tokens": [*map(tokenizer.decode, ids), "?"], "token_logprobs": scores}
        choice = {name: value for name, value in choice.items() if name not in self.without}
        return {"choices": [choice], "usage": {"prompt_tokens": len(ids), "completion_tokens": 1}}


@contextmanager
def serve(completions, models=("teacher",)):
    """Run the server; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.reply(200, {"data": [{"id": name} for name in models]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with completions.lock:
                completions.bodies.append(body)
                completions.headers.append(dict(self.headers))
                completions.running += 1
                completions.most = max(completions.most, completions.running)
                status = completions.statuses.pop(0) if completions.statuses else 200
            answer = completions.answer(body) if status == 200 else {"error": "not now"}
            with completions.lock:
                completions.running -= 1
            self.reply(status, answer)

        def reply(self, status, answer):
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
