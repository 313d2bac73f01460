"""Load parts of transformers: no code of a checkpoint runs, and no attention is taken from its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

ATTENTION = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4")
"""Implementations that transformers has; other names are kernels of the hub, which are code of others."""
_UNSUPPORTED = "scaled_dot_product_attention"
"""In transformers' message about an architecture that does not support sdpa."""


def load_pretrained(kind: Any, pretrained_model_name_or_path: Any, **options: Any) -> Any:
    """Call `from_pretrained` of a class of transformers, without code of the checkpoint.

    Args:
        kind: a class of models, configurations, tokenizers or processors.
        pretrained_model_name_or_path: folder or name of the checkpoint.
        options: of `from_pretrained`. A model without `attn_implementation` gets sdpa, or eager where its architecture
            has none, whatever its config.json says.

    Raises:
        FileNotFoundError: the path can only be a folder, and there is none.
        ValueError: the checkpoint needs code of its own, or the attention is a kernel of the hub.
    """
    _check_place(pretrained_model_name_or_path)
    options = {**options, "trust_remote_code": False}
    if not _is_model(kind):
        return kind.from_pretrained(pretrained_model_name_or_path, **options)
    _check_config(kind, pretrained_model_name_or_path, options)
    return _with_attention(lambda **more: kind.from_pretrained(pretrained_model_name_or_path, **more), options)


def load_whole(kind: Any, path: Any, **options: Any) -> Any:
    """Load a model whose checkpoint has all of its weights, as the judges and networks of rewards are.

    Args:
        kind: a class of models.
        path: folder or name of the checkpoint.
        options: of `from_pretrained`.

    Raises:
        ValueError: weights are missing, such as the head of a classifier, and would be random.
    """
    model, report = load_pretrained(kind, path, output_loading_info=True, **options)
    refuse_missing(model, report["missing_keys"], f"{path}: ")
    return model


def refuse_missing(model: Any, missing: Iterable[str], title: str = "") -> None:
    """Raise ValueError for weights that a checkpoint lacks; the message begins with a title."""
    if names := sorted(missing):
        saved, loaded = (model.config.architectures or [""])[0], type(model).__name__
        classes = f"; it was saved by {saved}, and {loaded} is loaded here" if saved not in ("", loaded) else ""
        raise ValueError(f"{title}the checkpoint lacks {len(names)} weights, the first of them {names[0]}{classes}")


def build_pretrained(kind: Any, config: Any, **options: Any) -> Any:
    """Build a model with random weights from its configuration, under the rules of `load_pretrained`.

    Args:
        kind: a class of models.
        config: of transformers.
        options: of `from_config`.
    """
    if hasattr(kind, "from_config"):  # of several architectures, which may name code
        return _with_attention(lambda **more: kind.from_config(config, trust_remote_code=False, **more), options)
    return _with_attention(lambda **more: kind._from_config(config, **more), options)


def check_attention(name: Any) -> None:
    """Refuse an attention implementation that transformers would fetch as a kernel from the hub."""
    if name not in ATTENTION:
        raise ValueError(
            f"model.policy: attention={name!r} is none of {', '.join(ATTENTION)}; other names are kernels of the hub, "
            "which are programs of others and are not run"
        )


def _check_place(place: Any) -> None:
    """Refuse a path that does not exist and has not the form of a name of the hub, which is NAME or OWNER/NAME."""
    path = Path(place)
    if not path.exists() and (len(path.parts) > 2 or path.is_absolute() or str(place).startswith((".", "~"))):
        raise FileNotFoundError(
            f"{place}: there is no such folder (the working directory is {Path.cwd()}); a run writes its policy when "
            "it has ended"
        )


def _check_config(kind: Any, place: Any, options: dict[str, Any]) -> None:
    """Refuse a config.json that names a kernel, which transformers prefers to the option."""
    if "gguf_file" in options or isinstance(options.get("config"), PreTrainedConfig):
        return
    where = {name: options[name] for name in ("subfolder", "revision", "cache_dir") if name in options}
    config_class = getattr(kind, "config_class", None) or AutoConfig
    configs = [config_class.from_pretrained(place, trust_remote_code=False, **where)]
    while configs:
        config = configs.pop()
        if config._attn_implementation is not None:
            check_attention(config._attn_implementation)
        configs += [each for each in vars(config).values() if isinstance(each, PreTrainedConfig)]


def _is_model(kind: Any) -> bool:
    return hasattr(kind, "_from_config") or hasattr(kind, "from_config")


def _with_attention(build: Any, options: dict[str, Any]) -> Any:
    if "attn_implementation" in options:
        check_attention(options["attn_implementation"])
        return build(**options)
    try:
        return build(**options, attn_implementation="sdpa")
    except ValueError as error:
        if _UNSUPPORTED not in str(error):
            raise
    return build(**options, attn_implementation="eager")
