"""Compare a loaded checkpoint with transformers once, and fall back to the model's own attention, or refuse it."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from mmrl.policies.text.fidelity.measure import Plain, is_rounded, measure_differences

log = logging.getLogger(__name__)

EXACT = 1e-3  # nats, of weights in fp32
ROUNDED = 0.5  # nats, of large models in bf16 or fp16: rounding moves SmolLM2-135M by 0.26


@dataclass(frozen=True)
class Verdict:
    """What the comparison of a checkpoint showed.

    Args:
        shares: the policy's own attention, which shares prompts, is exact.
        refusal: why the checkpoint cannot be used; empty if it can.
        line: what is printed when the model keeps its own attention; empty if it does not.
        differences: the largest differences in nats by what was compared, with the attention that is used.
    """

    shares: bool
    refusal: str = ""
    line: str = ""
    differences: dict[str, float] = field(default_factory=dict)


def check_fidelity(policy: Any, plain: Plain, install: Callable[[bool], None]) -> Verdict:
    """Compare a policy with the plain model, and install the attention that is exact.

    Args:
        policy: with its loaded model, before adapters.
        plain: the model as transformers loaded it.
        install: gives the policy the attention that shares prompts (True) or that of the model (False).

    Raises:
        ValueError: the policy would compute something else than the checkpoint in transformers.
    """
    key = fingerprint(policy.model, plain)
    verdict = recall(key)
    if verdict is None:
        verdict = measure(policy, plain, install)
        remember(key, verdict)
    if verdict.refusal:
        raise ValueError(verdict.refusal)
    if verdict.line:
        log.warning("%s", verdict.line)
    install(verdict.shares)
    return verdict


def measure(policy: Any, plain: Plain, install: Callable[[bool], None]) -> Verdict:
    """Compare with the attention that shares prompts, then with the model's own."""
    kind, modes = policy.model.config.model_type, [(module, module.training) for module in policy.modules()]
    limit = ROUNDED if is_rounded(policy.model) else EXACT
    reasons: list[str] = []
    try:
        for shares in (True, False):
            install(shares)
            try:
                differences = measure_differences(policy, plain)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # the code of an architecture may raise anything
                reasons.append(f"it fails with {type(error).__name__}: {' '.join(str(error).split())[:200]}")
                continue
            worst = max(differences, key=lambda name: differences[name])
            if differences[worst] <= limit:
                line = f"{kind} keeps its own attention, and prompts are not shared: {reasons[0]}" if reasons else ""
                return Verdict(shares, "", line, differences)
            reasons.append(explain(worst, differences[worst]))
    finally:
        for module, mode in modes:
            module.training = mode
    return Verdict(
        False,
        f"policy: {kind} computes something else here than in transformers alone: {reasons[-1]}. Choose a causal "
        "language model whose layers are all attention with rotary positions, such as qwen2, qwen3, llama, gemma3 or "
        "mixtral",
    )


def explain(name: str, nats: float) -> str:
    """Say what differs, and by how much."""
    what = {
        "sampled": "decoding with its cache",
        "padded": "rows that are padded on the left",
        "alone": "a row without padding",
        "shared": "completions in one sequence with their prompt",
        "packed": "prompts in one sequence",
        "trained": "the model in training mode (it draws noise that cannot be switched off)",
    }[name]
    return f"{what} changes log-probs or entropies by {nats:.2g} nats"


def fingerprint(model: Any, plain: Plain) -> str:
    """Hash the configuration, the code, versions, and some numbers of each weight."""
    digest = hashlib.sha256()
    settings = model.config.to_dict() | {"_name_or_path": "", "architectures": type(model).__name__}
    noise = [(name, value) for _, name, value in plain.noise]
    state = [settings, plain.attention, noise, transformers.__version__, torch.__version__, hash_code()]
    digest.update(json.dumps(state, sort_keys=True, default=str).encode())
    for name, tensor in model.named_parameters():
        some = tensor.detach().flatten()[:: max(1, tensor.numel() // 16)][:16].float().cpu()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}{some.tolist()}".encode())
    return digest.hexdigest()[:32]


@functools.cache
def hash_code() -> str:
    """Hash the code of text policies, so that a verdict on other code is not used."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


_known: dict[str, Verdict] = {}


def recall(key: str) -> Verdict | None:
    """Return the stored verdict of a checkpoint; None without one."""
    if key not in _known:
        with suppress(OSError, ValueError, TypeError):
            _known[key] = Verdict(**json.loads((cache_folder() / f"{key}.json").read_text()))
    return _known.get(key)


def remember(key: str, verdict: Verdict) -> None:
    """Store a verdict for this process, and for later ones where the folder can be written.

    A refusal is measured again: it may come from this machine, such as from too little memory.
    """
    if verdict.refusal:
        return
    _known[key] = verdict
    with suppress(OSError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"{key}.{os.getpid()}.tmp"
        temporary.write_text(json.dumps(asdict(verdict)))
        temporary.replace(folder / f"{key}.json")


@functools.cache
def cache_folder() -> Path:
    """Folder of stored verdicts: mmrl/fidelity in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmrl" / "fidelity"
