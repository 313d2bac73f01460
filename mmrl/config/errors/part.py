"""Convert a constructor's error to one message with the key, the class and the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.utilities.exceptions import MisconfigurationException

from mmrl.config.errors.parser import is_from_callback, is_from_restore
from mmrl.core.errors import ConfigError, is_user_error

_LONGEST = 400  # maximum characters of a reason, since some libraries print whole models
_HINT = "change it or leave it out; MMRL_TRACEBACK=1 shows where it was refused"


def explain_error(error: BaseException, key: str, part: str, arguments: Mapping[str, Any] | None = None) -> ConfigError:
    """Return the error of a part: mmrl's messages unchanged, a library's with key, class and remedy.

    Args:
        error: raised by the constructor.
        key: of the part in the configuration.
        part: its import path.
        arguments: arguments of the constructor; the message has the plain values.
    """
    if isinstance(error, ConfigError) or is_user_error(error):
        message = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        return ConfigError(_name_model(message, key))
    text = " ".join(str(error).split())
    complaint = f"{type(error).__name__}: {text}" if len(text.split()) < 4 else text
    if len(complaint) > _LONGEST:
        complaint = f"{complaint[:_LONGEST]} ..."
    values = _plain(arguments or {})
    if "None" in complaint:
        values |= {name: None for name, value in (arguments or {}).items() if value is None}
    pairs = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return ConfigError(f"{key} ({part}): {complaint.rstrip('. ')}. It was given {pairs[:_LONGEST]}; {_HINT}")


def _name_model(message: str, key: str) -> str:
    """Name the model that a policy's message is about: `policy` is the key of the policy alone, not of other models."""
    root = ".".join(key.split(".")[:3])
    is_other = root.startswith(("model.", "data.")) and not root.startswith("model.policy")
    return re.sub(r"^policy(?=[.:])", root, message) if is_other else message


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Select numbers, strings and small collections of them; None is left out."""
    kinds = (bool, int, float, str, list, tuple, dict)
    return {name: value for name, value in arguments.items() if isinstance(value, kinds) and value not in ({}, [])}


def place_of(node: Any, path: str, arguments: Mapping[str, Any], key: str = "") -> str:
    """Find the key under which the configuration names a class; "" if it does not.

    Args:
        node: the configuration, or a part of it.
        path: the class's import path.
        arguments: plain arguments that distinguish two parts of one class.
    """
    places = list(_places(node, path.rpartition(".")[2], key))
    alike = [place for place, values in places if all(values.get(n) == v for n, v in _plain(arguments).items())]
    return next(iter(alike or [place for place, _ in places]), "")


def _places(node: Any, name: str, key: str) -> Any:
    if isinstance(node, Mapping):
        inside = node.get("init_args", {}) if "class_path" in node else node
        if str(node.get("class_path", "")).rpartition(".")[2] == name:
            yield key, inside or {}
        for word, value in (inside or {}).items():
            yield from _places(value, name, f"{key}.{word}" if key else word)
    elif isinstance(node, (list, tuple)):
        for number, value in enumerate(node):
            yield from _places(value, name, f"{key}[{number}]")


def explain_fit_error(error: Exception, path: str | None) -> str | None:
    """Explain an error of a checkpoint, of the trainer's arguments or of a callback; None of others."""
    text = " ".join(str(error).split())
    restored = path is not None and is_from_restore(error)
    if isinstance(error, ConfigError) or is_user_error(error):
        return f"ckpt_path={path}: {text}" if restored and str(path) not in text else None
    if restored:
        return (
            f"ckpt_path={path}: its state cannot be restored ({type(error).__name__}: {text[:300]}); use another "
            "checkpoint of the run, or begin a new one"
        )
    if isinstance(error, MisconfigurationException) or is_from_callback(error):
        return f"trainer: {text} (trainer.callbacks.NAME=null takes a callback out)"
    return None
