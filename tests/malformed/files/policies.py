"""Malformed folders of policies and checkpoints, made from right ones by one change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from mmrl.policies.control.policy import ControlPolicy
from mmrl.policies.text.policy import TextPolicy
from tests.malformed.files.case import Case

SMALL = {
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
WEIGHTS = "model.safetensors"


@lru_cache(maxsize=1)
def text_policy() -> TextPolicy:
    return TextPolicy(config=dict(SMALL))


@lru_cache(maxsize=1)
def _text() -> Path:
    folder = Path(mkdtemp()) / "text"
    text_policy().save_pretrained(folder)
    return folder


@lru_cache(maxsize=1)
def _control() -> Path:
    folder = Path(mkdtemp()) / "control"
    ControlPolicy(observation_dims=3, actions=2, hidden=[4]).save_pretrained(folder)
    return folder


def copied(good: Callable[[], Path], change: Callable[[Path], object]) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        change(shutil.copytree(good(), folder / "policy"))
        return folder / "policy"

    return build


def text(change: Callable[[Path], object]) -> Callable[[Path], Path]:
    return copied(_text, change)


def control(change: Callable[[Path], object]) -> Callable[[Path], Path]:
    return copied(_control, change)


def put(name: str, content: bytes | str) -> Callable[[Path], object]:
    raw = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(raw)


def cut(size: int) -> Callable[[Path], object]:
    """Only the first bytes of the weights; without so many last ones where negative."""
    return lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:size])


def tensors(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        result = {name: value.clone() for name, value in load_file(folder / WEIGHTS).items()}
        change(result)
        save_file(result, folder / WEIGHTS, {"format": "pt"})

    return edit


def settings(**changed: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        stored = json.loads((folder / "config.json").read_text())
        stored = {name: value for name, value in {**stored, **changed}.items() if value != "gone"}
        (folder / "config.json").write_text(json.dumps(stored))

    return edit


def longer(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes() + b"more")


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    torch.save(text_policy().model.state_dict(), folder / "pytorch_model.bin")


def emptied(folder: Path) -> None:
    """No checkpoint: what is left of a folder such as /tmp, in which other programs put their files."""
    for file in folder.iterdir():
        file.unlink()
    torch.save({}, folder / "o1.pt")


def broken(value: float) -> Callable[[dict[str, Any]], object]:
    return lambda result: result[sorted(result)[1]].view(-1)[:1].fill_(value)


_FILE, _FOLDER = r"policy/model\.safetensors", r"policy\.path='.*policy'"
_CONFIG = r"policy/config\.json"
TEXT = [
    Case("weights of no bytes", text(put(WEIGHTS, b"")), _FILE, "header is broken"),
    Case("weights of a text", text(put(WEIGHTS, "version https://git-lfs.github.com/spec/v1\n")), _FILE, "is broken"),
    Case("weights of zeros", text(put(WEIGHTS, bytes(5000))), _FILE, "header is broken"),
    Case("weights cut in their header", text(cut(100)), _FILE, "not a safetensors file of 100 bytes"),
    Case("weights without their last bytes", text(cut(-100)), _FILE, "the file was cut"),
    Case("weights with more bytes", text(longer), _FILE, "was cut"),
    Case("pickled weights", text(pickled), "pytorch_model.bin", "pickle can run any program.*convert"),
    Case("somebody's folder with a pickle", text(emptied), _FOLDER, "save_pretrained"),
    Case("no weights", text(lambda folder: (folder / WEIGHTS).unlink()), _FOLDER, "no file named model.safetensors"),
    Case("a weight of NaN", text(tensors(broken(float("nan")))), "model.layers", "1 of .* not finite"),
    Case("a weight that is infinite", text(tensors(broken(float("inf")))), "model.layers", "1 of .* not finite"),
    Case(
        "a weight that is missing", text(tensors(lambda t: t.pop("model.norm.weight"))), "model.norm.weight", "lacks 1"
    ),
    Case(
        "a weight of another shape",
        text(tensors(lambda t: t.update({"model.norm.weight": torch.ones(8)}))),
        "model.norm.weight",
        r"\[8\] in the file, \[32\]",
    ),
    Case("another hidden_size", text(settings(hidden_size=64)), _FOLDER, r"not those of config.json.* 64\]"),
    Case("another vocabulary", text(settings(vocab_size=5)), "embed_tokens", r"\[5, 32\] in config.json"),
    Case("hidden_size of a text", text(settings(hidden_size="x")), _FOLDER, "hidden_size"),
    Case("no heads", text(settings(num_attention_heads=0)), _FOLDER, "division"),
    Case("a layer too many", text(settings(num_hidden_layers=2)), _FOLDER, "num_hidden_layers"),
    Case("an unknown architecture", text(settings(model_type="foo")), _FOLDER, "does not recognize"),
    Case("no architecture", text(settings(model_type="gone", architectures="gone")), _FOLDER, "model_type"),
    Case("code of its own", text(settings(model_type="foo", auto_map={"AutoConfig": "x.Y"})), _FOLDER, "cannot be"),
    Case("config.json a list", text(put("config.json", "[]")), _FOLDER, "holds a list, not an object"),
    Case("config.json not JSON", text(put("config.json", "{")), _FOLDER, "broken JSON at character 2"),
    Case("no config.json", text(lambda folder: (folder / "config.json").unlink()), _FOLDER, "model_type"),
    Case("tokenizer.json not JSON", text(put("tokenizer.json", "{")), _FOLDER, "cannot be loaded"),
    Case("tokenizer.json empty", text(put("tokenizer.json", "")), _FOLDER, "cannot be loaded"),
    Case("no tokenizer.json", text(lambda f: (f / "tokenizer.json").unlink()), _FOLDER, "no vocabulary"),
    Case("tokenizer_config.json a list", text(put("tokenizer_config.json", "[1]")), _FOLDER, "cannot be loaded"),
    Case("an empty folder", text(lambda f: [p.unlink() for p in f.iterdir()]), _FOLDER, "cannot be loaded"),
]

CONTROL = [
    Case("control: no config.json", control(lambda f: (f / "config.json").unlink()), _CONFIG, "is missing"),
    Case("control: config.json a list", control(put("config.json", "[]")), _CONFIG, "a list, not an object"),
    Case("control: config.json not JSON", control(put("config.json", "{")), _CONFIG, "broken JSON"),
    Case("control: a setting that is missing", control(settings(actions="gone")), _CONFIG, r"\['actions'\] missing"),
    Case("control: a size of 0", control(settings(actions=0)), "policy.actions", "must be at least 1"),
    Case("control: another size", control(settings(observation_dims=5)), _FILE, r"of another shape: .*\[4, 3\]"),
    Case("control: no weights", control(lambda f: (f / WEIGHTS).unlink()), _FILE, "cannot be read"),
    Case("control: weights of no bytes", control(put(WEIGHTS, b"")), _FILE, "not a readable safetensors file"),
    Case("control: weights that were cut", control(cut(-20)), _FILE, "not a readable safetensors file"),
    Case("control: a weight of NaN", control(tensors(broken(float("nan")))), _FILE, "not finite"),
    Case(
        "control: a weight too many",
        control(tensors(lambda t: t.update(more=torch.ones(1)))),
        _FILE,
        "1 not of this policy: more",
    ),
    Case("control: a weight that is missing", control(tensors(lambda t: t.pop(sorted(t)[0]))), _FILE, "1 missing"),
]


def checkpoint(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Path]:
    """A checkpoint of the text policy; `change` edits it, or gives what is saved in its place."""

    def build(folder: Path) -> Path:
        state = {f"policy.{name}": value.clone() for name, value in text_policy().state_dict().items()}
        saved: Any = {"state_dict": state, "policy_contract": text_policy().contract()}
        changed = change(saved)
        torch.save(saved if changed is None else changed, folder / "x.ckpt")
        return folder / "x.ckpt"

    return build


def weights(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], Path]:
    def edit(saved: dict[str, Any]) -> None:
        change(saved["state_dict"])

    return checkpoint(edit)


_NORM = "policy.model.model.norm.weight"
_CKPT = r"x\.ckpt"
CHECKPOINTS = [
    Case("checkpoint: a list", checkpoint(lambda saved: [1]), _CKPT, "a list|no state_dict"),
    Case("checkpoint: a number", checkpoint(lambda saved: 7), _CKPT, "a number|no state_dict"),
    Case("checkpoint: a tensor", checkpoint(lambda saved: torch.ones(2)), _CKPT, "Tensor|no state_dict"),
    Case("checkpoint: no weights", checkpoint(lambda saved: {"epoch": 1}), _CKPT, "state_dict"),
    Case("checkpoint: weights that are a list", checkpoint(lambda saved: {"state_dict": []}), _CKPT, "state_dict"),
    Case("checkpoint: weights that are null", checkpoint(lambda saved: {"state_dict": None}), _CKPT, "state_dict"),
    Case("checkpoint: weights of nobody", checkpoint(lambda saved: {"state_dict": {}}), _CKPT, "of a policy"),
    Case(
        "checkpoint: of another program",
        checkpoint(lambda saved: {"state_dict": {"a": torch.ones(1)}}),
        _CKPT,
        "none of its 1 weights is of a policy",
    ),
    Case(
        "checkpoint: a weight that is a number", weights(lambda state: state.update({_NORM: 3})), _NORM, "not a tensor"
    ),
    Case(
        "checkpoint: a weight of another shape",
        weights(lambda state: state.update({_NORM: torch.ones(8)})),
        "norm",
        r"another shape: model.model.norm.weight \[8\] \(here \[32\]\)",
    ),
    Case("checkpoint: a weight that is missing", weights(lambda state: state.pop(_NORM)), "norm", "1 missing"),
    Case(
        "checkpoint: a weight too many",
        weights(lambda state: state.update({"policy.x": torch.ones(1)})),
        _CKPT,
        "1 not of this policy: x",
    ),
    Case(
        "checkpoint: a weight of NaN",
        weights(lambda state: state[_NORM].fill_(float("nan"))),
        "norm",
        "32 of 32 numbers that are not finite",
    ),
    Case(
        "checkpoint: a weight that is infinite",
        weights(lambda state: state[_NORM][:1].fill_(float("inf"))),
        "norm",
        "1 of 32 numbers that are not finite",
    ),
]
