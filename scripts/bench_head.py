"""Memory and time of an output layer with and without chunks: python scripts/bench_head.py --tokens 2048.

One JSON line for each mode on stdout. Every mode is a fresh process: logits of a layer without bias, log-probs and
entropy of one id per token, and the gradient of both with respect to hidden states and weight.

  peak       peak of resident memory (VmHWM) minus the resident memory before the pass, in bytes; the weight's gradient
             is in it, the weight and the hidden states are not
  seconds    of the CPU for forward and backward, the fastest of --repeats passes
  difference largest difference from the mode "whole": of log-probs and entropy in nats, of the gradients relative to
             the largest entry
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.ops.chunked_layer import apply_in_chunks
from mmrl.ops.logprob import logprob_entropy
from mmrl.policies.text.packing.output_layer import CHUNK_ROWS

NUMBERS = ("tokens", "vocabulary", "hidden", "rows", "repeats")


def measure(mode: str, options: argparse.Namespace, file: Path) -> dict[str, Any]:
    """Measure one mode in this process; what it computes goes into the file."""
    torch.manual_seed(0)
    layer = nn.Linear(options.hidden, options.vocabulary, bias=False)
    hidden = torch.randn(options.tokens, options.hidden, requires_grad=True)
    ids = torch.randint(options.vocabulary, (options.tokens,))

    def score(logits: Tensor, at: slice) -> list[Tensor]:
        return [part[:, 0] for part in logprob_entropy(logits[:, None], ids[at, None])]

    before, seconds = read_memory("VmRSS"), []
    for _ in range(options.repeats):
        layer.weight.grad = hidden.grad = None
        began = time.process_time()
        if mode == "whole":
            logprobs, entropy = score(layer(hidden), slice(None))
        else:
            logprobs, entropy = apply_in_chunks(layer, hidden, score, options.rows)
        (logprobs.mean() + 0.1 * entropy.mean()).backward()
        seconds.append(time.process_time() - began)
    peak = read_memory("VmHWM") - before
    torch.save([logprobs.detach(), entropy.detach(), hidden.grad, layer.weight.grad], file)
    return {"peak": peak, "seconds": round(min(seconds), 3)}


def read_memory(name: str) -> int:
    """Bytes of an entry of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def compare(file: Path, whole: Path) -> float:
    """Largest difference between the results of two modes."""
    pairs = list(zip(torch.load(file), torch.load(whole)))
    scores = [float((mine - reference).abs().max()) for mine, reference in pairs[:2]]
    return max(
        *scores, *(float((mine - reference).abs().max() / reference.abs().max()) for mine, reference in pairs[2:])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in zip(NUMBERS, (2048, 49152, 576, CHUNK_ROWS, 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--mode", choices=["whole", "chunks"], help="measure this mode in this process")
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.mode:
        print(json.dumps(measure(options.mode, options, options.file)))
        return
    sizes = {name: getattr(options, name) for name in NUMBERS}
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("whole", "chunks"):
            file = Path(folder) / mode
            command = [sys.executable, __file__, *words, "--mode", mode, "--file", str(file)]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            difference = compare(file, Path(folder) / "whole")
            print(json.dumps({"mode": mode, **sizes, **result, "difference": difference}), flush=True)


if __name__ == "__main__":
    main()
