"""Rows on which a policy and the plain model are compared: two prompts, and sampled completions of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch, pad_stack
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, Sampling
from mmrl.policies.text.architecture import list_unknown_types
from mmrl.policies.text.cache import share_from

SHORT, LONG = 8, 24  # tokens of the prompts
BRANCHING = 66  # tokens of the long prompt where routers and layers of an unknown type choose by token
CHOICES = 3  # two steps of decoding: the first after a prompt, and one that follows
SIZES = ((48, 48), (32, 96))  # height and width of the images, in pixels: of different numbers of tiles
OWNER = (0, 1, 1)  # the prompt of each row
REACH = ("topk", "top_k", "window", "chunk_size", "block_size")
"""Ends of the names of numbers of tokens beyond which a layer computes otherwise, in configurations."""
LONGEST = 4160  # tokens of a prompt for layers of an unknown type


@dataclass(frozen=True)
class Probe:
    """Sampled rows: the prompts, the batch that a learner would get, and the number of choices of each row."""

    observations: list[Observation]
    batch: Batch
    lengths: list[int]

    def repeats(self) -> bool:
        """Whether the completions of one prompt are equal: they cannot show whether they attend to each other."""
        (first, second) = (row for row, owner in enumerate(OWNER) if owner == 1)
        return torch.equal(self.batch["action"][first], self.batch["action"][second])


def sample_probe(policy: Any, length: int = LONG, temperature: float = 1.0, videos: bool = False) -> Probe:
    """Sample a completion of a short prompt and two of one of `length` tokens, whose storage decoding shares.

    Args:
        policy: that samples.
        length: of the second prompt's text, in tokens.
        temperature: of the choices.
        videos: prompts with videos in place of images.
    """
    observations = build_observations(policy, length, videos=videos)
    noise = Noise(range(1, 1 + len(OWNER)))
    sampling = Sampling(max_tokens=CHOICES, temperature=temperature)
    rows = policy.collate([observations[number] for number in OWNER])
    with share_from(1):
        if policy.takes_padding:
            columns = _sample(policy, observations, OWNER, sampling, noise)
        else:  # each prompt in front of other prompts of its length, whose rows are left out
            others = build_observations(policy, length, seed=1, videos=videos)
            pieces = [
                _sample(policy, pair, [0, *[1] * OWNER.count(number)], sampling, noise[[number, *places_of(number)]])
                for number, pair in enumerate(zip(others, observations))
            ]
            columns = {name: pad_stack([row for piece in pieces for row in piece[name][1:]]) for name in pieces[0]}
    batch = Batch(
        {f"obs.{name}": column for name, column in rows.items()},
        **columns,
        temperature=torch.full((len(OWNER),), temperature),
        prompt_id=torch.tensor(OWNER),
    )
    return Probe(observations, batch, columns["action_mask"].sum(1).tolist())


def places_of(number: int) -> list[int]:
    """The rows of a prompt."""
    return [row for row, owner in enumerate(OWNER) if owner == number]


def _sample(
    policy: Any, observations: Sequence[Observation], owner: Sequence[int], sampling: Sampling, noise: Noise
) -> dict[str, Tensor]:
    """Sample completions of prompts in one batch: actions, their mask and log-probs, each [R, T]."""
    action = policy.act_groups(policy.collate(observations), torch.tensor(owner), sampling, noise)
    return {name: getattr(action, name) for name in ("action", "action_mask", "behavior_logprobs")}


def build_observations(policy: Any, length: int, seed: int = 0, videos: bool = False) -> list[Observation]:
    """Build a short and a long prompt of ordinary tokens, with an image each of two sizes where the policy sees.

    With `videos` the first has a video, and the second an image and a video.
    """
    limit = min(policy.context_length or length * 2, policy.switch_length or length * 2) - CHOICES - 1
    special = {*policy.forbidden, *policy.tokenizer.all_special_ids}
    vocabulary = policy.model.config.get_text_config().vocab_size
    ordinary = [i for i in range(min(vocabulary, len(policy.tokenizer))) if i not in special]
    ids = np.random.default_rng(seed).choice(ordinary, SHORT + length)
    media = [policy.encode(each) for each in policy.video_probes()] if videos else _encode_images(policy)
    prompts = media or [{"input_ids": torch.tensor([], dtype=torch.long)}] * 2
    longest = max(limit - max(len(prompt["input_ids"]) for prompt in prompts), 1)
    short, long = min(SHORT, (longest + 1) // 2), min(length, longest)
    return [
        policy.extend(prompts[0], torch.from_numpy(ids[:short])),
        policy.extend(prompts[1], torch.from_numpy(ids[-long:])),
    ]


def choose_length(config: Any, noisy: bool = False) -> int:
    """Choose the tokens of the long prompt: more where a layer treats some tokens or lengths in another way.

    Args:
        config: of the transformers model.
        noisy: whether it has settings of noise, which code may read in evaluation too.
    """
    text = config.get_text_config(decoder=True)
    if not list_unknown_types(config):
        experts = (value for name, value in vars(text).items() if "expert" in name and isinstance(value, int))
        return BRANCHING if noisy or max(experts, default=0) > 1 else LONG
    reaches = [value for name, value in vars(text).items() if name.endswith(REACH) and isinstance(value, int)]
    return min(max(BRANCHING, *(2 * reach + LONG for reach in [0, *reaches])), LONGEST)


def _encode_images(policy: Any) -> list[Observation] | None:
    """Encode the policy's own probe with images of two sizes; None for a policy that does not see."""
    canary: Mapping[str, Any] = policy.canary()
    if not canary.get("images"):
        return None
    ramps = [np.arange(height * width * 3, dtype=np.uint32).reshape(height, width, 3) for height, width in SIZES]
    return [policy.encode({**canary, "images": ((ramp * 37 % 251).astype(np.uint8),)}) for ramp in ramps]


def row_inputs(observation: Observation, completion: Tensor, per_token: frozenset[str]) -> dict[str, Tensor]:
    """Return the inputs of one row, alone and without padding, as a user of transformers would give them."""
    inputs = {}
    for name, value in observation.items():
        if name == "input_ids":
            inputs[name] = torch.cat([value, completion])[None]
        elif name in per_token:
            inputs[name] = torch.cat([value, value.new_zeros(len(completion))])[None]  # later tokens are text
        else:
            inputs[name] = value
    return {**inputs, "attention_mask": torch.ones_like(inputs["input_ids"])}
