"""A process in the place of `vllm serve` that runs a text model and takes its weights, as `engine.python` of a test.

`write_python(FOLDER)` writes the interpreter. It names a version of vLLM, and serves a checkpoint at a socket, whose
name is the server's number, or at a port, which is its number then. Files in the folder make a server fail once:
`die-NUMBER` with a count kills it at the first prompt after so many, `hang-NUMBER` stops it at the next prompt,
`die-loading-NUMBER` kills it when the next weights come; with `refuse` no server takes weights.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

VERSION = "0.32.0+cpu"


def write_python(folder: Path) -> Path:
    """Write an executable that takes the arguments of a Python interpreter with vLLM."""
    from tests.quick_python import quick_python

    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{quick_python()}" "{__file__}" "{folder}" "$@"\n')
    path.chmod(0o755)
    return path


def build(folder: str) -> Any:
    """Load a checkpoint, or build its model with zeros if the folder has no weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if next(Path(folder).glob("*.safetensors"), None) is not None:
        return AutoModelForCausalLM.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    for parameter in model.parameters():
        parameter.data.zero_()
    return model


class Model:
    """A causal language model, the version of its weights, and the answers to vLLM's routes about them."""

    def __init__(self, folder: str):
        import torch

        torch.set_num_threads(1)
        self.model = build(folder).eval()
        self.version, self.loaded, self.group, self.folder = "default", None, None, folder

    def draw(self, ids: list[int], params: dict[str, Any]) -> tuple[list[int], list[float], str]:
        import torch

        generator = torch.Generator().manual_seed(params.get("seed", 0))
        temperature, stop = params.get("temperature", 1.0), params.get("stop_token_ids", ())
        drawn: list[int] = []
        logprobs: list[float] = []
        for _ in range(params["max_tokens"]):
            with torch.no_grad():
                logits = self.model(torch.tensor([ids + drawn])).logits[0, -1]
            for token, bias in params.get("logit_bias", {}).items():
                logits[int(token)] += bias
            scores = (logits / (temperature or 1.0)).log_softmax(-1)
            choice = torch.multinomial(scores.exp(), 1, generator=generator) if temperature else scores.argmax()
            drawn.append(int(choice))
            logprobs.append(float(scores[drawn[-1]]))
            if drawn[-1] in stop:
                return drawn, logprobs, "stop"
        return drawn, logprobs, "length"

    def score(self, ids: list[int]) -> list[dict[str, Any] | None]:
        """Log-probs of a prompt's tokens, as vLLM's route writes them."""
        import torch

        with torch.no_grad():
            logprobs = self.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        return [None, *({str(i): {"logprob": float(row[i])}} for i, row in zip(ids[1:], logprobs))]

    def join(self, address: dict[str, Any] | None = None, first_rank: int = 1) -> None:
        from mmrl.engines.vllm.weights.group import GroupAddress, WeightGroup

        if address is not None:
            self.group = WeightGroup(GroupAddress(**address), first_rank)

    def load(self, version: int, path: str = "", tensors: Any = None, scales: Any = None) -> None:
        import torch
        from safetensors.torch import load_file

        from mmrl.engines.vllm.weights.factors import Weights

        weights = load_file(path) if tensors is None else self.group.receive(tensors, torch.device("cpu"))
        if scales is not None:
            with Weights(Path(self.folder), "cpu", weights, scales) as merged:
                weights = {name: merged.tensor(name) for name in merged}
        self.model.load_state_dict(weights, strict=tensors is None)  # a broadcast has several blocks
        self.loaded = version

    def report_weights(self) -> dict[str, Any]:
        from mmrl.engines.vllm.weights.fingerprint import fingerprint

        tensors = {}
        for name, tensor in self.model.state_dict().items():
            first, second = fingerprint(tensor)
            kind = str(tensor.dtype).removeprefix("torch.")
            tensors[name] = {"sum": first.hex(), "squares": second.hex(), "count": tensor.numel(), "dtype": kind}
        return {"version": self.loaded, "parts": {n: [n] for n in tensors}, "ignored": [], "tensors": tensors}


def serve(control: Path, words: list[str]) -> None:
    """Answer vLLM's routes at --uds or --port; the server's number is the end of either."""
    from aiohttp import web

    named = dict(pairwise(words))
    number = Path(named["--uds"]).name if "--uds" in named else named["--port"]
    model, asked = Model(words[words.index("serve") + 1]), 0

    def fail() -> None:
        nonlocal asked
        asked += 1
        die, hang = control / f"die-{number}", control / f"hang-{number}"
        if hang.exists():
            hang.unlink()
            time.sleep(600)
        if die.exists() and asked > int(die.read_text()):
            die.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    async def generate(request: web.Request) -> web.Response:
        body = await request.json()
        fail()
        ids, logprobs, reason = model.draw(body["token_ids"], body["sampling_params"])
        with (control / f"asked-{number}").open("a") as log:
            log.write(f"{model.version}\n")
        content = [{"token_id": i, "logprob": x, "top_logprobs": []} for i, x in zip(ids, logprobs)]
        choice = {"finish_reason": reason, "stop_reason": None, "token_ids": ids, "logprobs": {"content": content}}
        choice["weight_versions"] = [{"version": model.version, "start": 0, "end": len(ids)}]
        reply = {"prompt_token_ids": body["token_ids"], "choices": [choice]}
        if "prompt_logprobs" in body["sampling_params"]:
            reply["prompt_logprobs"] = model.score(body["token_ids"])
        return web.json_response(reply)

    async def call(request: web.Request) -> web.Response:
        body = await request.json()
        if body["method"] in ("mmrl_check", "mmrl_check_broadcast"):
            problems = ["the test refuses it"] if (control / "refuse").exists() else []
            dtypes = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in model.model.parameters()})
            return web.json_response({"results": [{"problems": problems, "dtypes": dtypes, "device": "cpu"}]})
        return web.json_response({"results": [model.report_weights()]})

    async def other(request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else {}
        if request.path == "/init_weight_transfer_engine":
            await asyncio.to_thread(model.join, **body["init_info"])
        if request.path == "/update_weights":
            if (control / f"die-loading-{number}").exists():
                (control / f"die-loading-{number}").unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.to_thread(model.load, **body["update_info"])
        model.version = body.get("new_version", body.get("weight_version", model.version))
        return web.json_response({"success": True, "weight_version": model.version})

    application = web.Application()
    application.router.add_post("/inference/v1/generate", generate)
    application.router.add_post("/collective_rpc", call)
    application.router.add_route("*", "/{name}", other)
    place = {"path": named["--uds"]} if "--uds" in named else {"host": named["--host"], "port": int(named["--port"])}
    web.run_app(application, print=None, **place)


if __name__ == "__main__":
    if sys.argv[2] == "-c":
        print(VERSION)
    else:
        serve(Path(sys.argv[1]), sys.argv[2:])
