"""Call LeRobot in an environment of its own, named by MMRL_LEROBOT: folders for PYTHONPATH."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.policies.vla.checkpoints.pi_checkpoints import action_tokenizer, text_tokenizer

FOLDERS = os.environ.get("MMRL_LEROBOT", "")
needs_lerobot = pytest.mark.skipif(
    not FOLDERS, reason="needs LeRobot 0.6 with its transformers: MMRL_LEROBOT=FOLDER:FOLDER, see docs/how-to/vla.md"
)


def lerobot(*words: Any) -> None:
    """Run `lerobot_reference.py` with LeRobot's packages in front of this project's."""
    script = str(Path(__file__).with_name("lerobot_reference.py"))
    done = subprocess.run(
        [sys.executable, script, *map(str, words)],
        env=os.environ | {"PYTHONPATH": FOLDERS},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr[-3000:]


def make(kind: str, folder: Path) -> Path:
    """Write a tiny random checkpoint by LeRobot's definition; the folder's tokenizers are this project's."""
    text_tokenizer().save_pretrained(folder / "own" / "paligemma")
    action_tokenizer().save(folder / "own" / "fast")
    lerobot("make", kind, folder / "made", folder / "own")
    return folder / "made"


def run(kind: str, folder: Path, tokenizers: Path, tasks: list[str], **given: Any) -> dict[str, Any]:
    """Return actions and losses of LeRobot's policy in `folder`, given images, state, chunk, noise and time."""
    inputs, outputs = folder / "inputs.safetensors", folder / "outputs.safetensors"
    save_file({name: value.contiguous() for name, value in given.items()}, inputs, {"tasks": json.dumps(tasks)})
    lerobot("run", kind, folder, tokenizers, inputs, outputs)
    return load_file(outputs)
