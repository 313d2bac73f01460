"""Log-probabilities of rows by transformers alone: this file imports nothing of mmrl and runs as its own program.

`python -m scripts.model_sweep.plain FOLDER...` reads FOLDER/rows.pt and the model of FOLDER/policy of each, and prints
one line of JSON per folder: the largest difference to the stored log-probs, or the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging

AUTO_MODELS: dict[str, Any] = {"text": AutoModelForCausalLM, "image": AutoModelForImageTextToText}


def load_plain(folder: Path | str, family: str) -> Any:
    """Load a checkpoint as its users do, and refuse weights that are missing or left over."""
    model, report = AUTO_MODELS[family].from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {name: sorted(map(str, report[name]))[:3] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    if any(wrong.values()):
        raise ValueError(f"the weights do not fit: { {name: keys for name, keys in wrong.items() if keys} }")
    return model.eval()


@torch.no_grad()
def score_row(model: Any, inputs: dict[str, Tensor], completion: Tensor, forbidden: list[int]) -> tuple[Tensor, Tensor]:
    """Log-probs [T] and entropies [T] in nats of one completion, alone and without padding.

    Args:
        inputs: of the prompt, with a batch axis; those that run along its tokens are as long as input_ids.
        completion: [T] ids.
        forbidden: ids without probability.
    """
    length = inputs["input_ids"].shape[1]
    ids = torch.cat([inputs["input_ids"], completion[None]], 1)
    longer = {
        name: torch.nn.functional.pad(value, (0, len(completion)))
        for name, value in inputs.items()
        if name.endswith("token_type_ids")
    }
    others = {name: value for name, value in inputs.items() if name not in ("input_ids", "attention_mask")}
    out = model(**{**others, **longer, "input_ids": ids, "attention_mask": torch.ones_like(ids)}, use_cache=False)
    logits = out.logits[0, length - 1 : -1].float()
    logits[:, forbidden] = -torch.inf
    log_p = logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p.nan_to_num(neginf=0.0)).sum(-1)
    return log_p.gather(1, completion[:, None])[:, 0], entropy


def compare_folder(folder: Path) -> dict[str, Any]:
    """Compare the model of FOLDER/policy with the log-probs in FOLDER/rows.pt."""
    stored = torch.load(folder / "rows.pt", weights_only=True)
    try:
        model = load_plain(folder / "policy", stored["family"])
        rows = zip(stored["inputs"], stored["completions"], stored["logprobs"])
        worst = max(
            float((score_row(model, inputs, ids, stored["forbidden"])[0] - logprobs).abs().max())
            for inputs, ids, logprobs in rows
        )
        return {"folder": str(folder), "difference": worst}
    except Exception as error:
        return {"folder": str(folder), "error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for place in sys.argv[1:]:
        print(json.dumps(compare_folder(Path(place))), flush=True)
