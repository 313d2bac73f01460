"""Seconds of an update of a small network: plain, captured (`mmrl.capture`) and with torch.compile.

One JSON line: python scripts/gpu_check/compiled.py --device cuda. An update is a forward pass, a mean squared error
and the gradients of all weights; the three give the same gradients up to `difference`, relative to the largest entry.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from mmrl.capture.graph import CapturedGraph

Update = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def build_update(net: nn.Module) -> Update:
    """Return a function from inputs and targets to the loss and its gradients."""
    names = [name for name, _ in net.named_parameters()]

    def update(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        loss = (net(tensors["inputs"]) - tensors["targets"]).square().mean()
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        return {"loss": loss.detach(), **dict(zip(names, gradients))}

    return update


def measure(update: Update, tensors: dict[str, Tensor], calls: int) -> tuple[float, dict[str, Tensor]]:
    """Return the median of the seconds of a call, and the last result."""
    seconds, result = [], {}
    for _ in range(calls):
        began = time.perf_counter()
        result = update(tensors)
        if tensors["inputs"].is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return median(seconds), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    options = parser.parse_args()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, options.width), nn.Tanh(), nn.Linear(options.width, options.width), nn.Tanh())
    net.append(nn.Linear(options.width, 8)).to(options.device)
    sizes = {"inputs": (options.rows, 32), "targets": (options.rows, 8)}
    tensors = {name: torch.randn(size, device=options.device) for name, size in sizes.items()}
    graph, plain = CapturedGraph("an update", min_calls=0), build_update(net)
    ways: dict[str, Update] = {
        "plain": plain,
        "captured": lambda inputs: graph(plain, inputs),
        "compiled": build_update(torch.compile(net, backend=options.backend)),
    }
    result, expected = {}, None
    for name, update in ways.items():
        began = time.perf_counter()
        measure(update, tensors, 3)
        first = time.perf_counter() - began
        seconds, values = measure(update, tensors, options.calls)
        expected = expected or values
        result[name] = {"seconds": seconds, "first_seconds": first, "difference": compare(values, expected)}
    result["captured"]["used"] = any(each is not None for each in graph.graphs.values())
    print(json.dumps({"width": options.width, "rows": options.rows, **result}), flush=True)


def compare(values: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Largest difference between entries, relative to the largest entry; names may begin with a compiler's prefix."""
    pairs = list(zip(values.values(), expected.values(), strict=True))
    return max(float((value - other).abs().max() / other.abs().max()) for value, other in pairs)


if __name__ == "__main__":
    main()
