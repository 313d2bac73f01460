"""A tiny policy with a byte-pair tokenizer and a template of chat turns with tools, and engines for its tests."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from mmrl.core.types import Completion, Context, Prompt, Sampling, Task
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy

TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}<|im_start|>assistant
{%- if message.content %}
{{ message.content }}{% endif %}
{%- for call in message.tool_calls %}
<tool_call>
{{ call.function | tojson }}
</tool_call>
{%- endfor %}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Turns as Qwen writes them; the newline behind an end token belongs to no turn."""
WORDS = ("add", "the", "numbers", "answer", "seven", "is", "please", "look", "again", "done", "twelve", "what", "naïve")
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of 480 tokens, trained on a few hundred lines, with the marks of chat turns."""
    draw = random.Random(0)
    lines = [" ".join(draw.choices(WORDS, k=8)) for _ in range(200)]
    lines += [json.dumps({"name": "add", "arguments": {"a": a, "b": a + 1}}) for a in range(30)]
    lines += [json.dumps(TOOL), "<tool_call>\n</tool_call>\n", "system\nuser\nassistant\ntool\n"] * 5
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(lines, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        padding_side="left",
        chat_template=TEMPLATE,
    )


@cache
def save_checkpoint(folder: Path) -> Path:
    """A checkpoint with random weights that are larger than usual, so that its tokens differ in probability."""
    tokenizer = build_tokenizer()
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    config = Qwen2Config(
        vocab_size=len(tokenizer), **sizes, num_attention_heads=2, num_key_value_heads=2, initializer_range=0.2,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, max_position_embeddings=1024,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Questions(Task):
    """Questions of a few words; `info["number"]` is the index."""

    name, split = "questions", "train"

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Prompt:
        draw = random.Random(index)
        text = " ".join(draw.choices(WORDS, k=3))
        return Prompt(
            f"questions/train/{index}", ({"role": "user", "content": text},), answer=index, info={"number": index}
        )

    def score(self, episode: Any) -> dict[str, float]:
        return {"exact": 0.0}

    def on(self, split: str) -> Task:
        return self


class Steered(LocalEngine):
    """Samples from the policy; for a share of the seeds it writes a call or an answer of the test instead.

    These turns are cut into tokens at random places, so that their ids are not those of the tokenizer, and their
    log-probs are left at zero.

    Args:
        share: of such turns.
    """

    def __init__(self, share: float):
        super().__init__()
        self.share = share
        self.batches: list[int] = []

    def sample(self, requests: Any, sampling: Sampling) -> list[Completion]:
        self.batches.append(len(requests))
        return [self._steer(request, done) for request, done in zip(requests, super().sample(requests, sampling))]

    def _steer(self, request: Any, done: Completion) -> Completion:
        draw = random.Random(request.seed)
        if draw.random() >= self.share:
            return done
        policy: Any = self._policy
        text, ids = write_turn(draw), []
        while text:
            size = draw.randint(1, 6)
            part, text = text[:size], text[size:]
            ids += policy.tokenizer.encode(part, add_special_tokens=False)
        action = torch.tensor([*ids, policy.tokenizer.eos_token_id])
        return Completion(
            done.observation, action, torch.zeros(len(action)), torch.ones(len(action), dtype=torch.bool),
            policy.decode(action.tolist()), "done", None, done.extra, done.policy_version, prompt_id=done.prompt_id,
        )  # fmt: skip


def write_turn(draw: random.Random) -> str:
    """One or two calls, with a word before them or not, or an answer."""
    if draw.random() < 0.3:
        return f"The answer is {draw.choice(WORDS)}"
    calls = [
        {"name": "add", "arguments": {"a": draw.randint(0, 9), "b": draw.randint(0, 99)}}
        for _ in range(draw.randint(1, 2))
    ]
    text = "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
    return text if draw.random() < 0.5 else f"{draw.choice(WORDS)}\n{text}"


def build_context(policy: TextPolicy, engine: LocalEngine, group_size: int = 1, **options: Any) -> Context:
    engine.sync(policy, 0)
    sampling = options.pop("sampling", Sampling(max_tokens=8))
    return Context(Questions(), engine, policy, sampling, options.pop("seed", 0), 0, group_size=group_size, **options)
