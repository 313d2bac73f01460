"""A process in the place of `vllm serve`, for what happens to processes: it has a child, and answers like vLLM.

`python stand_in.py PORT [hang] [slow]`: its token is the seed; more than 50 tokens are refused, or with "hang" never
answered; with "slow" an answer takes a second.
"""

import json
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWERS = {
    "/collective_rpc": {"results": [{"problems": []}]},
    "/reset_prefix_cache": {"success": True},
}


class Answers(BaseHTTPRequestHandler):
    drawn = 0

    def do_GET(self):
        self.answer({"drawn": Answers.drawn})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/inference/v1/generate":
            return self.answer(ANSWERS.get(self.path, {}))
        sampling = body["sampling_params"]
        if sampling["max_tokens"] > 50:
            if "hang" in sys.argv:
                time.sleep(600)
            return self.answer({"error": "too many tokens"}, 400)
        Answers.drawn += 1
        time.sleep(1.0 if "slow" in sys.argv else 0.02)
        token = sampling.get("seed", 0)
        choice = {"finish_reason": "stop", "stop_reason": None, "token_ids": [token], "weight_versions": []}
        logprobs = {"content": [{"token_id": token, "logprob": -1.0, "top_logprobs": []}]}
        self.answer({"prompt_token_ids": body["token_ids"], "choices": [choice | {"logprobs": logprobs}]})

    def answer(self, body, status=200):
        written = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    def log_message(self, *words):
        pass


if __name__ == "__main__":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
