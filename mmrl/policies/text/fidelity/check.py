"""Compare a loaded checkpoint with transformers once, and fall back to the model's own attention, or refuse it."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from mmrl.policies.text.architecture import list_unknown_types
from mmrl.policies.text.fidelity.failures import format_failure, is_of_model
from mmrl.policies.text.fidelity.idle_weights import has_idle_weights
from mmrl.policies.text.fidelity.measure import EXACT, Plain, is_rounded, measure_differences
from mmrl.policies.text.fidelity.verdicts import FidelityVerdict, recall, remember

log = logging.getLogger(__name__)

ROUNDED = 0.5  # nats, of large models in bf16 or fp16: rounding moves SmolLM2-135M by 0.26
REMEDY = "Choose a type that docs/models.md says is exact, such as qwen2, qwen3_5, llama, gemma3 or mixtral"


def check_fidelity(policy: Any, plain: Plain, install: Callable[[bool, bool], None]) -> FidelityVerdict:
    """Compare a policy with the plain model, and install the attention that is exact.

    Args:
        policy: with its loaded model, before adapters.
        plain: the model as transformers loaded it.
        install: gives the policy the attention that shares prompts (True) or that of the model (False), and batches
            whose rows are padded (True) or have equal lengths (False).

    Raises:
        ValueError: the policy would compute something else than the checkpoint in transformers.
    """
    key = fingerprint(policy.model, policy.processor, plain)
    verdict, cause = recall(key), None
    if verdict is None:
        verdict, cause = measure(policy, plain, install)
        remember(key, verdict)
    if verdict.refusal:
        raise ValueError(verdict.refusal) from cause
    if verdict.line:
        log.warning("%s", verdict.line)
    install(verdict.shares, verdict.pads)
    return verdict


def measure(
    policy: Any, plain: Plain, install: Callable[[bool, bool], None]
) -> tuple[FidelityVerdict, Exception | None]:
    """Compare with the attention that shares prompts, then with the model's own, then without padding.

    Returns:
        The verdict, and the exception that a refusal comes from; None where a number refuses.

    Raises:
        Exception: our own code failed outside of the model: a defect that no other attention would mend.
    """
    config, modes = policy.model.config, [(module, module.training) for module in policy.modules()]
    kind, limit = config.model_type, ROUNDED if is_rounded(policy.model) else EXACT
    unknown = ", ".join(list_unknown_types(config))
    reasons = [f"no shortcut is taken for its layers of type {unknown}"] if unknown else []
    cause: Exception | None = None
    try:
        for shares, pads in list_ways(policy, plain, install):
            install(shares, pads)
            try:
                differences = measure_differences(policy, plain, limit)
            except (torch.OutOfMemoryError, MemoryError):
                raise
            except Exception as error:  # the code of an architecture may raise anything
                if not is_of_model(error):
                    error.add_note(f"This happened while {kind} was compared with transformers, in code of mmrl")
                    raise
                reasons.append(f"it fails with {format_failure(error)}")
                cause = error
                continue
            worst = max(differences, key=lambda name: differences[name])
            if differences[worst] <= limit:
                line = f"{kind} keeps its own attention, and prompts are not shared: {reasons[0]}" if reasons else ""
                if not pads:
                    line += f". Its rows stand beside rows of the same length alone: with padding, {reasons[-1]}"
                videos, idle = measure_videos(policy, plain, limit), has_idle_weights(policy)
                return FidelityVerdict(shares, pads, "", line, differences, videos, idle), None
            reasons.append(explain(worst, differences[worst]))
            cause = None
    finally:
        for module, mode in modes:
            module.training = mode
    refusal = f"policy: {kind} computes something else here than in transformers alone: {reasons[-1]}. {REMEDY}"
    return FidelityVerdict(False, True, refusal), cause


def measure_videos(policy: Any, plain: Plain, limit: float) -> str:
    """Compare prompts with videos, with the attention that is installed; returns the reason why they are not exact."""
    if not policy.video_probes():
        return ""
    try:
        differences = measure_differences(policy, plain, limit, videos=True)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # the code of a processor or an architecture may raise anything
        if not is_of_model(error):
            error.add_note("This happened while prompts with videos were compared with transformers, in code of mmrl")
            raise
        return f"it fails with {format_failure(error)}"
    worst = max(differences, key=lambda name: differences[name])
    return "" if differences[worst] <= limit else explain(worst, differences[worst])


def list_ways(policy: Any, plain: Plain, install: Callable[[bool, bool], None]) -> list[tuple[bool, bool]]:
    """List what to install and measure, as (shares, pads): the attention that shares prompts, where the model takes it,
    then its own, then that without padding, which the layers of some models count."""
    install(True, True)
    unshared = [(False, True), (False, False)]
    return unshared if get_attention(policy.model) == plain.attention else [(True, True), *unshared]


def get_attention(model: Any) -> str:
    """Return the attention implementation of the language model."""
    return model.config.get_text_config(decoder=True)._attn_implementation


def explain(name: str, nats: float) -> str:
    """Say what differs, and by how much."""
    if name == "positions":
        return "the positions of a row depend on the other rows of its batch"
    what = {
        "sampled": "decoding with its cache",
        "padded": "rows that are padded on the left",
        "alone": "a row without padding",
        "shared": "completions in one sequence with their prompt",
        "packed": "prompts in one sequence",
        "trained": "the model in training mode (it draws noise that cannot be switched off)",
    }[name]
    return f"{what} changes log-probs or entropies by {nats:.2g} nats"


def fingerprint(model: Any, processor: Any, plain: Plain) -> str:
    """Hash the configuration, the settings of pictures, the code, versions, and some numbers of each weight."""
    digest = hashlib.sha256()
    settings = model.config.to_dict() | {"_name_or_path": "", "architectures": type(model).__name__}
    noise = [(name, value) for _, name, value in plain.noise]
    readers = [getattr(processor, name, None) for name in ("image_processor", "video_processor")]
    state = [settings, plain.attention, noise, transformers.__version__, torch.__version__, hash_code()]
    state.append(str(getattr(processor, "chat_template", None)))
    state += [reader.to_dict() if hasattr(reader, "to_dict") else None for reader in readers]
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
