"""Tokens and time of a learn step with and without packing different prompts: python scripts/bench_packing.py.

Rows of unequal lengths, one completion for each prompt: an eighth of them 32 times as long as the others. One JSON line
for each way on stdout, all with the same log-probs.

  one_pass   all rows in one call of the network, as sharded weights require; otherwise rows of similar length share one
  packed     policy.pack_prompts
  passes     calls of the network
  tokens     of all sequences, padding included; `rows` are the tokens of the rows alone
  seconds    of the CPU for forward and backward, the fastest of three
  difference largest difference of a log-prob from the first line, in nats
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.policies.text.policy import TextPolicy

IDS = 90
"""Ids of characters of the character tokenizer."""


def build_rows(policy: TextPolicy, count: int, longest: int) -> Batch:
    """Rows of random tokens: half of each is a prompt, half a completion."""
    generator = torch.Generator().manual_seed(0)
    lengths = [longest // 2 if i % 8 == 0 else max(longest // 64, 2) for i in range(count)]
    prompts = [{"input_ids": torch.randint(4, IDS, (length,), generator=generator)} for length in lengths]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    columns = {f"obs.{name}": column for name, column in policy.collate(prompts).items()}
    action = torch.randint(4, IDS, mask.shape, generator=generator)
    number = torch.arange(count)
    return Batch(action=action * mask, action_mask=mask, temperature=torch.ones(count), prompt_id=number, **columns)


def measure(policy: TextPolicy, batch: Batch) -> tuple[dict[str, int | float], Tensor]:
    """Time the forward and backward pass over all rows."""
    tokens, seconds = policy.extract_tokens(batch), []
    packing = policy.choose_packing(tokens, batch)
    sizes = [tokens.pack(packed, policy.prefix_sharing.mask).tensors["input_ids"].numel() for packed in packing]
    for _ in range(3):
        policy.zero_grad()
        began = time.process_time()
        logprobs = policy(batch).logprobs
        logprobs.sum().backward()
        seconds.append(time.process_time() - began)
    return {"passes": len(sizes), "tokens": sum(sizes), "seconds": round(min(seconds), 3)}, logprobs.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--longest", type=int, default=256, help="tokens of the longest row")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    sizes = {"hidden_size": options.hidden, "intermediate_size": 3 * options.hidden}
    sizes |= {"num_attention_heads": options.hidden // 32, "num_key_value_heads": options.hidden // 32}
    config = {"model_type": "qwen2", **sizes, "num_hidden_layers": options.layers, "max_position_embeddings": 4096}
    first: Tensor | None = None
    for one_pass, packed in itertools.product((True, False), (False, True)):
        torch.manual_seed(0)
        policy = TextPolicy(config=dict(config), pack_prompts=packed)
        batch = build_rows(policy, options.rows, options.longest)
        policy.one_pass = one_pass
        result, logprobs = measure(policy, batch)
        first = logprobs if first is None else first
        rows = int(batch["obs.attention_mask"].sum() + batch["action_mask"].sum()) - options.rows
        difference = float((logprobs - first).abs().max())
        print(json.dumps({"one_pass": one_pass, "packed": packed, "rows": rows, **result, "difference": difference}))


if __name__ == "__main__":
    main()
