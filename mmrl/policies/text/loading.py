"""Load checkpoints, add low-rank adapters, and merge them."""

from __future__ import annotations

import copy
import io
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils import enable_progress_bars
from torch import nn
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from mmrl.files.pretrained import build_pretrained, load_pretrained, refuse_missing
from mmrl.files.strict_json import read_json_object
from mmrl.policies.quantization import dequantize_linears, quantize_linears
from mmrl.policies.text.architecture import build_model, refuse_other_tasks
from mmrl.policies.text.checkpoint import locate_checkpoint, remove_quantization
from mmrl.policies.text.checks.adapted_layers import choose_targets
from mmrl.policies.text.checks.chat_template import check_chat_template
from mmrl.policies.text.routing.expert_weights import EXPERTS, list_expert_weights
from mmrl.policies.text.tokenizer import set_pad_token
from mmrl.policies.weights import check_finite, check_folder, fill, read_weights

log = logging.getLogger(__name__)
VALUE_HEAD = "value_head.safetensors"


@contextmanager
def checkpoint_error(path: str) -> Iterator[None]:
    """Convert errors of loading to one that names the checkpoint and the remedy."""
    arguments = locate_checkpoint(path)
    if "gguf_file" not in arguments:
        folder = Path(arguments["pretrained_model_name_or_path"])
        check_folder(folder)
        if (folder / "adapter_config.json").is_file() and not (folder / "config.json").exists():
            raise ValueError(f"policy.path={path!r}: {_format_adapters(path)}")
    try:
        yield
    except Exception as error:  # broken files raise many types of exceptions
        reason = " ".join(str(error).split())[:300].rstrip(". ") or type(error).__name__
        raise ValueError(
            f"policy.path={path!r} cannot be loaded: {reason}. Give a folder written by save_pretrained with its "
            "tokenizer or processor, a GGUF file of a text model, or a hub id that this machine can reach"
        ) from error


def _format_adapters(path: str) -> str:
    return (
        "it holds adapters alone, which would stay frozen; merge them into their base first: peft's "
        f"AutoPeftModelForCausalLM.from_pretrained({path!r}).merge_and_unload().save_pretrained(FOLDER)"
    )


def refuse_empty(tokenizer: Any) -> Any:
    """Refuse a tokenizer without tokens, which transformers builds if tokenizer.json is missing."""
    if not set(tokenizer("a policy", add_special_tokens=False)["input_ids"]) - set(tokenizer.all_special_ids):
        raise ValueError("its tokenizer has no vocabulary; tokenizer.json is missing or empty")
    return tokenizer


def check_tokenizer(tokenizer: Any) -> Any:
    """Refuse a tokenizer without tokens, and a chat template that cannot be used."""
    check_chat_template(tokenizer)
    return refuse_empty(tokenizer)


def read_config(path: str) -> Any:
    """Read the configuration of a checkpoint; None for a GGUF file, whose architectures all continue texts."""
    arguments = locate_checkpoint(path)
    if "gguf_file" in arguments:
        return None
    file = Path(arguments["pretrained_model_name_or_path"]) / "config.json"
    if file.is_file():
        read_json_object(file, "save the policy there again", finite=False)
    return load_pretrained(AutoConfig, **arguments)


def load_model(auto_model: Any, path: str, may_lack: tuple[str, ...] = (), **options: Any) -> Any:
    """Load a transformers model from safetensors or GGUF; missing weights are refused, not drawn at random.

    On the meta device config.json alone is read: the model has shapes and dtypes, and no weights.

    Args:
        auto_model: a model class of transformers.
        path: of `locate_checkpoint`; the weights of a GGUF file are dequantised.
        may_lack: beginnings of the names of weights that the checkpoint may lack.
        options: of `from_pretrained`.

    Raises:
        ValueError: missing weights, weights of another shape, or weights that are not finite.
    """
    arguments = locate_checkpoint(path)
    if torch.get_default_device().type == "meta":
        return _build_from_config(auto_model, load_pretrained(AutoConfig, **arguments), options)
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True, "use_safetensors": True}
    # of GGUF files transformers draws a progress bar that cannot be switched off
    bar = redirect_stderr(io.StringIO()) if "gguf_file" in arguments else nullcontext()
    with _quiet(), bar:  # the errors below replace its long report
        model, report = load_pretrained(auto_model, **arguments, **options)
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ValueError(_format_adapters(path))
    remove_quantization(model)
    refuse_missing(model, (name for name in report["missing_keys"] if not name.startswith(may_lack)))
    if other := sorted(report["mismatched_keys"], key=str):
        name, file_shape, config_shape = other[0]
        raise ValueError(
            f"{len(other)} weights are not those of config.json, the first of them {name}: "
            f"{list(file_shape)} in the file, {list(config_shape)} in config.json"
        )
    check_finite(model.named_parameters(), path)
    if unused := sorted(report["unexpected_keys"]):
        log.warning("%s: %d weights are not used, the first of them %s", path, len(unused), unused[0])
    return model


def _build_from_config(auto_model: Any, config: Any, options: dict[str, Any]) -> Any:
    """Build a model without a checkpoint's weights; options that the configuration has replace its own."""
    if hasattr(auto_model, "from_config"):
        return build_pretrained(auto_model, config, **options)
    changed = options.keys() & config.to_dict().keys() - {"dtype"}  # a class of one model takes these here alone
    for name in changed:
        setattr(config, name, options[name])
    return build_pretrained(auto_model, config, **{k: v for k, v in options.items() if k not in changed})


def save_model(model: Any, folder: Path) -> None:
    """Save a model in transformers' format."""
    with _quiet():
        model.save_pretrained(folder)


def save_config(model: Any, folder: Path) -> None:
    """Save the configuration of a model that `save_model` would save, without its weights."""
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = copy.deepcopy(plain.config)
    config.dtype = plain.dtype
    config.architectures = [type(plain).__name__]
    config.save_pretrained(folder)
    plain.generation_config.save_pretrained(folder)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress transformers' reports and progress bars; bars of downloads stay."""
    before, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    enable_progress_bars()  # of downloads, which the line above disables too
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
        if bars:
            transformers_logging.enable_progress_bar()


NOISE = ("dropout", "pdrop", "layerdrop", "drop_prob", "drop_rate", "drop_path_rate", "jitter_noise", "jitter_eps")
"""Ends of the names of numbers by which models draw noise in training mode."""


NoiseSettings = list[tuple[nn.Module, str, float]]
"""Numbers by which modules draw noise: module, name, and value."""


def list_noise(model: nn.Module) -> NoiseSettings:
    """List the settings of dropout, layer drop and the jitter of routers that are not zero."""
    return [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()  # transformers stores some of them as numbers
        if isinstance(value, float)
        and value != 0.0
        and (name.endswith(NOISE) or (name == "p" and isinstance(module, nn.modules.dropout._DropoutNd)))
    ]


def remove_noise(model: nn.Module) -> nn.Module:
    """Set dropout, layer drop and the jitter of routers to zero.

    With noise in the training step only, the importance ratio of an unchanged policy would not be one. What has another
    name is found by comparing the model in training mode (`mmrl.policies.text.fidelity`).
    """
    for module, name, _ in list_noise(model):
        setattr(module, name, 0.0)
    return model


def add_lora(model: nn.Module, lora: dict[str, Any] | None, quantization: str | None = None) -> nn.Module:
    """Add low-rank adapters as the only trainable weights; None leaves the model unchanged.

    Args:
        model: of transformers.
        lora: arguments of `peft.LoraConfig`; `target_parameters` may be "experts", see `list_expert_weights`.
        quantization: of the linear layers below the adapters, see `QuantizedLinear`.
    """
    quantize_linears(model, quantization, trainable=lora is None)
    if lora is None:
        return model
    from peft import LoraConfig, get_peft_model

    if lora.get("ensure_weight_tying"):
        raise ValueError(
            "policy.lora.ensure_weight_tying=true: exports of adapters on embeddings are untied, so each keeps its "
            "own; leave it out"
        )
    if lora.get("target_parameters") == EXPERTS:
        lora = {**lora, "target_parameters": list_expert_weights(model)}
    adapted = get_peft_model(model, LoraConfig(**choose_targets(model, lora)))
    untie_adapted(adapted.get_base_model())
    layers = [module.get_base_layer() for module in adapted.modules() if hasattr(module, "lora_A")]
    owners = Counter(id(layer.weight) for layer in layers if isinstance(layer, nn.Linear))
    if max(owners.values(), default=1) > 1:
        raise ValueError(
            f"policy.lora: layers of {model.config.model_type} share a weight, with which their adapters cannot be "
            "merged; name others in policy.lora.target_modules, or train all weights"
        )
    return adapted


def untie_adapted(model: Any) -> None:
    """Give input and output embeddings a weight each if one of them has an adapter, or is trained beside adapters.

    Merged into a shared weight, the adapter of one would change the other too. Configurations and exports are untied.
    """
    if not hasattr(model, "get_output_embeddings"):  # a network that is no language model
        return
    both = model.get_input_embeddings(), model.get_output_embeddings()
    if None in both or not getattr(model.config.get_text_config(), "tie_word_embeddings", False):
        return
    if not any(hasattr(module, "base_layer") or hasattr(module, "modules_to_save") for module in both):
        return
    head = getattr(both[1], "base_layer", getattr(both[1], "original_module", both[1]))
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=head.weight.requires_grad)
    for config in (model.config, model.config.get_text_config()):
        config.tie_word_embeddings = False
    model.all_tied_weights_keys = {}


def merge_lora(model: Any) -> Any:
    """Return the transformers model with adapters merged into a copy of the weights, which is dequantised before."""
    if not hasattr(model, "merge_and_unload"):
        return model
    return dequantize_linears(copy.deepcopy(model)).merge_and_unload()


def build_value_head(width: int, path: str | None, hidden: Sequence[nn.Module] = ()) -> nn.Linear | nn.Sequential:
    """Build a value head that predicts 0, with hidden layers in front of it, or that of a saved policy's folder."""
    last = nn.Linear(width, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    head = nn.Sequential(*hidden, last) if hidden else last
    if path is not None and (saved := Path(path) / VALUE_HEAD).exists():
        fill(head, read_weights(saved, "save the policy there again"), str(saved))
    return head


def choose_layers(depths: Sequence[float], layers: int) -> list[int]:
    """Return the numbers of the layers at these depths, from 1 for the first to `layers` for the last."""
    if not all(0 < depth <= 1 for depth in depths):
        raise ValueError(f"policy.hidden_layers must be depths in (0, 1], got {list(depths)}")
    return [max(1, round(depth * layers)) for depth in depths]


def build_parts(policy: Any, path: str | None, config: dict[str, Any] | None, dtype: str, attention: str) -> Any:
    """Give a policy its processor, and return the model, without adapters.

    Args:
        policy: whose class says what is loaded.
        path: hub id or folder of a checkpoint; None for random weights.
        config: architecture of random weights.
        dtype: of the weights.
        attention: implementation that is asked for.
    """
    if path is not None:
        with checkpoint_error(path):
            checkpoint_config = read_config(path)
        if checkpoint_config is not None:
            refuse_other_tasks(checkpoint_config, policy.auto_model)
        with checkpoint_error(path):
            policy.processor = policy.load_processor(path)
            load = partial(load_model, policy.auto_model, path, dtype=dtype)
            model = build_model(lambda kind: load(attn_implementation=kind), attention)
        set_pad_token(policy.tokenizer, path)
    else:
        full, policy.processor = policy.random_parts(dict(config or {}))
        build = partial(build_pretrained, policy.auto_model, full, dtype=dtype)
        model = build_model(lambda kind: build(attn_implementation=kind), attention)
    return model
