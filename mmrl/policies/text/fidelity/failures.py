"""Whose code an exception of the comparison comes from."""

from __future__ import annotations

import traceback
from pathlib import Path

import transformers
from torch.nn.modules import module

from mmrl.core.errors import OWN, is_user_error

OF_MODELS = (module.__file__, str(Path(transformers.__file__).parent))
"""Files that are on the way into a model: the call of a network, and all of transformers."""


def is_of_model(error: BaseException) -> bool:
    """Whether an exception came out of a model, or of its tokenizer, processor or cache of transformers.

    An exception that passed through none of them says nothing about the checkpoint: it is a defect of our code, unless
    our code raised it on purpose.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return is_user_error(error) or any(frame.filename.startswith(OF_MODELS) for frame in frames)


def format_failure(error: BaseException) -> str:
    """Name an exception of a model, and our file and line if our attention or cache raised it inside of the model."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f" in {Path(last.filename).name}, line {last.lineno}" if last.filename.startswith(OWN) else ""
    text = " ".join(str(error).split())[:200]
    if not text:  # such as a bare assert
        place, text = f" in {Path(last.filename).name}, line {last.lineno}", (last.line or "no message")[:200]
    return f"{type(error).__name__}{place}: {text}"
