"""Memory that the sampling engine takes beside the learner, and the bytes of one transfer of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmrl.commands.planning.parameters import ModuleSize
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.weights.update import AdapterFactors
from mmrl.policies.base import Policy

VLLM_SHARE = 0.9
"""Share of a device that vLLM takes where no option says so."""
VLLM_CPU_CACHE = 2**30


@dataclass(frozen=True)
class EngineBytes:
    """Bytes of an engine on the rank's device, on the host, and of one weight transfer."""

    kind: str  # local or vllm
    share: int  # of the device, while it samples
    always: bool  # whether it keeps its share in the other phases
    host: int
    sync: int  # sent at every iteration
    merged: int  # merged weights on the learner's device during a transfer
    note: str
    files: int = 0  # in shared memory: the initial checkpoint, and two updates while one replaces the other


def measure_engine(
    engine: Any, policy: Policy, size: ModuleSize, device: str, memory: int, first_rank: bool, devices: int
) -> EngineBytes:
    """Measure the engine's share for a rank.

    Args:
        engine: of the data module.
        policy: on the meta device.
        size: of the policy.
        device: cpu or cuda.
        memory: of the rank's device, bytes.
        first_rank: whether it is the first rank of its node.
        devices: training devices of a node.
    """
    if not isinstance(engine, VllmEngine):
        return EngineBytes("local", 0, False, 0, 0, 0, "samples with the policy's own weights: nothing is sent")
    lora = hasattr(getattr(policy, "model", None), "merge_and_unload")
    full = _exported_bytes(policy, size) if lora else _state_bytes(policy)
    adapters = isinstance(engine.sent, AdapterFactors)
    sync, merged = size.trainable_bytes if adapters else full, full if lora else 0
    backend: Any = engine.backend
    streamed = backend.takes_tensors and engine.sent.whole
    files = full + 2 * sync if first_rank and engine.folder is None and not streamed else 0
    if getattr(backend, "urls", None):
        return EngineBytes("vllm", 0, False, 0 if streamed else sync, sync, merged, "servers that run already", files)
    apart = [int(number) for number in getattr(backend, "devices", None) or () if str(number).isdigit()]
    beside = backend.in_process or (first_rank and (not apart or min(apart) < devices))
    fraction = backend.memory_share
    share = (fraction or VLLM_SHARE) * memory if device == "cuda" else full + (backend.cache_gib or 1) * VLLM_CPU_CACHE
    sleeps = backend.in_process and device == "cuda"
    note = f"vLLM takes {fraction or VLLM_SHARE:.0%} of its device" + ("" if fraction else " (set engine.memory_share)")
    broadcast = sync if first_rank and not backend.in_process else 0  # for servers that are restarted
    host = (broadcast if streamed else sync) + (full if sleeps and backend.sleep_level == 1 else 0)
    return EngineBytes("vllm", round(share) if beside else 0, not sleeps, host, sync, merged, note, files)


def _exported_bytes(policy: Policy, size: ModuleSize) -> int:
    """Bytes of the weights without adapters; 4-bit weights are sent dequantised."""
    adapted: Any = policy.model
    plain: Any = adapted.get_base_model()
    adapters = sum(p.nbytes for name, p in plain.named_parameters() if ".lora_" in name)
    quantised = sum(
        part.in_features * part.out_features * part.dtype.itemsize - part.weight.nbytes
        for part in plain.modules()
        if hasattr(part, "dequantize") and hasattr(part, "kind")
    )
    return size.parameter_bytes - adapters + quantised


def _state_bytes(policy: Policy) -> int:
    """Bytes of the weights under every name: tied weights are sent twice."""
    model: Any = getattr(policy, "model", policy)
    skipped = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    return sum(tensor.nbytes for name, tensor in model.state_dict().items() if name not in skipped)
