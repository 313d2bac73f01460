"""Prepare a checkpoint with known completion lengths, and its problems: `python -m benchmark.prepare`.

Both sides and every engine read the ids that end a completion from the checkpoint, so the lengths are laid down there
and nowhere else. The weights are linked, not copied.

- Fixed lengths: the end-of-sequence token gets an id beyond the model's vocabulary, which can never be drawn.
- Variable lengths: each step ends a completion with about the same probability, by a set of end ids of the right size;
  the set is chosen by measurement, since the next token of a model is not uniform.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from benchmark import problems
from benchmark.settings import Settings

PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def prepare(model: str, settings: Settings) -> None:
    """Fill settings.folder from the checkpoint `model`."""
    folder = Path(settings.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file in Path(model).iterdir():
        if file.suffix in (".safetensors", ".bin"):
            (folder / file.name).symlink_to(file.resolve())
        elif file.is_file():
            shutil.copy(file, folder / file.name)
    config = AutoConfig.from_pretrained(model)
    processor = (AutoProcessor if settings.images else AutoTokenizer).from_pretrained(model, padding_side="left")
    tokenizer = getattr(processor, "tokenizer", processor)
    if tokenizer.chat_template is None and not settings.images:
        tokenizer.chat_template = PLAIN_TEMPLATE
    given = _problems(processor, settings)
    problems.write(folder, given)
    if settings.mean_length is None:
        ends = [_unused_token_id(tokenizer, config.get_text_config().vocab_size)]
    else:
        ends = _end_token_ids(model, tokenizer, given["texts"], settings)
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(ends[0])
    processor.save_pretrained(folder)
    _write_ends(folder, ends)
    print(f"{len(ends)} end ids of {config.get_text_config().vocab_size} ids", file=sys.stderr)


def _problems(processor: Any, settings: Settings) -> dict[str, Any]:
    """As many distinct problems as the steps need. An image counts as its one placeholder token."""
    tokenizer = getattr(processor, "tokenizer", processor)

    def count_tokens(text: str) -> int:
        parts = [{"type": "image"}, {"type": "text", "text": text}]
        messages = [{"role": "user", "content": parts if settings.images else text}]
        words = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return len(tokenizer(words, add_special_tokens=False)["input_ids"]) - settings.images

    count = settings.prompts * (settings.steps + 1)
    texts = problems.questions(count, settings.prompt_tokens, count_tokens, settings.seed)
    size = _image_size(processor) if settings.images else None
    return {"texts": texts, "image_size": size, "seed": settings.seed, "prompt_tokens": count_tokens(texts[0])}


def _image_size(processor: Any) -> int:
    size = processor.image_processor.size
    return int(size["height"] if "height" in size else size.get("shortest_edge", 224) if len(size) == 1 else 224)


def _unused_token_id(tokenizer: Any, vocabulary: int) -> int:
    """Id of a new end-of-sequence token without a logit."""
    missing = max(1, vocabulary + 1 - len(tokenizer))
    tokenizer.add_tokens([f"<|never {i}|>" for i in range(missing)], special_tokens=True)
    tokenizer.eos_token = f"<|never {missing - 1}|>"
    assert tokenizer.eos_token_id >= vocabulary
    return int(tokenizer.eos_token_id)


@torch.no_grad()
def _end_token_ids(model: str, tokenizer: Any, texts: list[str], settings: Settings) -> list[int]:
    """Ids of which about 1 in mean_length tokens is one, estimated from the model's own samples."""
    assert settings.mean_length is not None
    special = set(tokenizer.all_special_ids)
    auto = AutoModelForImageTextToText if settings.images else AutoModelForCausalLM
    net = auto.from_pretrained(model).eval()
    read = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    special |= {
        i for row in read for i in row
    }  # tied weights like to repeat: a prompt's last token would end it at once
    shortest = min(map(len, read))
    ids = torch.tensor([row[-shortest:] for row in read]).repeat(-(-512 // len(read)), 1)  # at least 512 samples
    torch.manual_seed(settings.seed)
    generated = net.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        eos_token_id=None,
        pad_token_id=0,
        max_new_tokens=settings.new_tokens,
    )[:, shortest:]
    size = net.get_input_embeddings().weight.shape[0]
    best, error = [], float("inf")
    for seed in range(20):
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()
        order = [i for i in order if i not in special and tokenizer.convert_ids_to_tokens(i) is not None]
        expected = max(1, round(size / settings.mean_length))
        for count in range(max(1, expected // 2), 2 * expected + 1, max(1, expected // 50)):
            ended = torch.isin(generated, torch.tensor(order[:count]))
            first = torch.where(ended.any(1), ended.int().argmax(1) + 1, settings.new_tokens)
            if (off := abs(first.float().mean().item() - settings.mean_length)) < error:
                best, error = order[:count], off
    return best


def _write_ends(folder: Path, ends: list[int]) -> None:
    path = folder / "generation_config.json"
    saved = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**saved, "eos_token_id": ends}, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    prepare(sys.argv[1], Settings.read(sys.argv[2]))
