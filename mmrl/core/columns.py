"""The data dictionary: every column of a Batch, with shape, unit and meaning. docs/columns.md is made from it.

Here are the columns of shared parts. A part of a paper or of a project registers its columns in its own module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SHAPE = re.compile(r"\[N(, [A-Z*]|, \.\.\.)*\]")


@dataclass(frozen=True)
class Column:
    """Description of one column: shape, unit and meaning."""

    shape: str
    unit: str
    meaning: str
    pad: float = 0  # padding of the choices beyond a row's own T, and the value in rows that may lack the column
    extends: bool = (
        False  # entries run along all tokens from the row's first, so that a later turn repeats earlier ones
    )

    def __post_init__(self) -> None:
        if wrong := [text for text in self.shape.split(" or ") if not _SHAPE.fullmatch(text)]:
            raise ValueError(
                f"a column of shape {wrong[0]!r}, but rows come first: write [N] for a value per row, [N, T] for one "
                "per choice, [N, *] for a number of values that each row has of its own"
            )


COLUMNS: dict[str, Column] = {
    "action": Column("[N, T, ...]", "ids or policy units", "the stored choices"),
    "action_mask": Column("[N, T]", "bool", "True where the policy chose; forced and padded choices are False"),
    "behavior_logprobs": Column(
        "[N, T]", "nats", "log-probability of each choice when it was sampled (behaviour policy)"
    ),
    "temperature": Column("[N]", "1", "what logits were divided by when sampling"),
    "padding_actions": Column(
        "[N, T, R]", "policy units", "entries of the network's action state beyond the chunk, which are no choices"
    ),
    "self_reward_mask": Column(
        "[N, T]", "bool", "self-reward token: appended after the completion, scored, not chosen by the policy"
    ),
    "packed_support_ids": Column(
        "[N, *]",
        "ids",
        "token ids that truncated sampling can draw for the choices of the row, one choice after the other",
    ),
    "support_sizes": Column(
        "[N, T]", "ids", "how many of `packed_support_ids` belong to the choice; 0 where nothing restricted it"
    ),
    "packed_guides": Column(
        "[N, *]",
        "bytes",
        "guided decoding: `Sampling.guide` in UTF-8, once for every completion in the row",
    ),
    "guide_sizes": Column(
        "[N, T]",
        "bytes",
        "how many of `packed_guides` a completion has that begins with the choice, -1 for its further choices; 0 where "
        "nothing restricted the choice, and where kept ids are stored",
    ),
    "support_ids": Column(
        "[N, T, K]",
        "ids",
        "ids that truncated sampling can draw, where there are few: bins or actions; -1 fills up, and is all there is "
        "where nothing restricted the choice",
        pad=-1,
    ),
    "routed_experts": Column(
        "[N, *]",
        "ids",
        "router replay: experts [layers, k] that sampling chose for each token that the network read, in their order",
        extends=True,
    ),
    "routed_tokens": Column("[N, *]", "ids", "router replay: the tokens of `routed_experts`", extends=True),
    "group": Column("[N]", "id", "episodes of one prompt share it"),
    "prompt_id": Column(
        "[N]", "id", "rows with the same encoded observation share it; it means nothing beyond the batch"
    ),
    "prompt_length": Column(
        "[N]", "tokens", "tokens of the observation before the first choice; 0 if it is not in tokens"
    ),
    "episode": Column("[N]", "id", "rows of one episode share it"),
    "step": Column("[N]", "decisions", "position of the row in its episode"),
    "discount": Column(
        "[N]", "1", "replay buffer: gamma^n, factor of the next state's value; 0 after a terminal state"
    ),
    "place": Column(
        "[N]", "id", "replay buffer of several processes: place of the row in the batch of all; -1 fills up"
    ),
    "reward": Column(
        "[N]", "reward", "environment reward of this decision; the composed episode reward is added to the last one"
    ),
    "episode_reward": Column("[N]", "reward", "composed reward of the whole episode, the same on all its rows"),
    "greedy_reward": Column("[N]", "reward", "composed reward of the greedy completion of the row's prompt"),
    "is_first": Column("[N]", "bool", "the episode's first row, where later ones are made in view of it"),
    "baseline_group": Column("[N]", "id", "rows that share a baseline across prompts, such as those of one role"),
    "segment": Column("[N, T]", "id", "piece of the row that a choice belongs to, counted from 0", pad=-1),
    "is_last": Column("[N]", "bool", "the episode's last row"),
    "is_terminal": Column("[N]", "bool", "last row of an episode that ended by itself: nothing follows"),
    "bootstrap_value": Column(
        "[N]", "reward", "value of what follows the last row of an episode that was cut off, else 0"
    ),
    "is_demo": Column("[N]", "bool", "the row comes from a demonstration, not from the policy"),
    "policy_version": Column(
        "[N]", "syncs", "version of the weights that sampled the row; -1 where none of this run did"
    ),
    "choice_versions": Column(
        "[N, T]",
        "syncs",
        "partial rollouts: version of the weights that drew the choice; the row's is the first",
        pad=-1,
    ),
    "preference": Column("[N]", "1", "1 preferred, -1 not, within its group; 0 neither"),
    "head_scores": Column("[N, T, K]", "score", "reward model: scores of its heads"),
    "labels": Column(
        "[N, K]", "score", "what the heads of a reward model learn: numbers, 0 or 1, or one class; NaN where unknown"
    ),
    "preference_margin": Column(
        "[N]", "score", "by how much the preferred row of the pair is better, as the data say; NaN where they do not"
    ),
    "preference_probability": Column(
        "[N]", "1", "soft label: probability that the preferred row of the pair is better; NaN where the data have none"
    ),
    "values": Column("[N] or [N, T]", "reward", "predicted return, per row or per choice, before the update"),
    "old_logprobs": Column("[N, T]", "nats", "learner's log-probability of each choice before the update"),
    "importance_weights": Column(
        "[N, T]",
        "1",
        "weight of a choice that another policy sampled: a bounded ratio of old_logprobs to behavior_logprobs",
    ),
    "ref_logprobs": Column("[N, T]", "nats", "log-probability of each choice under the frozen reference policy"),
    "reference_point": Column(
        "[N]", "nats", "KTO: KL divergence to the reference on completions of other prompts, before the update"
    ),
    "token_rewards": Column("[N, T]", "reward", "reward of each choice beside the row's, such as a KL penalty"),
    "kl_weights": Column("[N, T]", "1", "weight of the KL penalty at each choice, from the reference's certainty"),
    "reward_logprobs": Column(
        "[N, T]", "nats", "log-probability of each choice under a reward model, before the update"
    ),
    "imitation_mask": Column("[N, T]", "bool", "forced tokens, such as those of a hint, that the policy imitates"),
    "value_mask": Column(
        "[N, T]", "bool", "tokens, also forced ones of a guide, in whose states the value function is fitted"
    ),
    "other_logprobs": Column("[N, T]", "nats", "log-probability of each choice in another context, before the update"),
    "advantages": Column("[N, T]", "reward or standard deviations", "how much better the choice was than expected"),
    "returns": Column("[N] or [N, T]", "reward", "regression target of the values"),
    "row_seed": Column("[N]", "1", "seed of the draws of the loss, such as the timesteps of denoising"),
    "target_mask": Column("[N, M, H, W]", "bool", "pixels of the objects that the instruction names, in order"),
    "loss_weights": Column(
        "[N, T]",
        "1",
        "share of each choice in the loss; sums to one over the minibatch, under ConstantLength to the mean row "
        "length divided by its `length`",
    ),
}

OPTIONAL = frozenset(
    {
        "packed_support_ids",
        "support_sizes",
        "support_ids",
        "packed_guides",
        "guide_sizes",
        "choice_versions",
        "routed_experts",
        "routed_tokens",
    }
)
"""Columns that some rows of a batch may lack: those that were not sampled, truncated or guided, as demonstrations."""

COLLATED = frozenset(
    {
        "action",
        "action_mask",
        "behavior_logprobs",
        "temperature",
        "group",
        "prompt_id",
        "prompt_length",
        "episode",
        "step",
        "reward",
        "episode_reward",
        "is_last",
        "is_terminal",
        "bootstrap_value",
        "is_demo",
        "policy_version",
    }
)
"""Columns that every batch has when it leaves `collate`."""

_REGISTERED: dict[str, Column] = {}


def register_columns(columns: Mapping[str, Column]) -> None:
    """Register the columns that a part writes; called at the top level of its module.

    A process that pads a column has the part that writes it, and has therefore imported this module.

    Args:
        columns: by name, with shape, unit and meaning.

    Raises:
        ValueError: a name is that of a shared column, or of another column of a part.
    """
    for name, column in columns.items():
        if name in COLUMNS or _REGISTERED.get(name, column) != column:
            raise ValueError(f"column {name!r} is there already, as {find_column(name)}; choose another name")
        _REGISTERED[name] = column


def find_column(name: str) -> Column | None:
    """Find the column of this name, of a shared part or of an imported module; None if there is none."""
    return COLUMNS.get(name) or _REGISTERED.get(name)


def per_choice(name: str) -> bool:
    """Whether a column has an entry for every choice."""
    column = find_column(name)
    return column is not None and column.shape.startswith("[N, T")


def pad_value(name: str) -> float:
    """Return the padding value of a column for rows with fewer choices."""
    column = find_column(name)
    return column.pad if column is not None else 0


def is_ragged(name: str) -> bool:
    """Whether rows of this column have different lengths, other than their numbers of choices."""
    column = find_column(name)
    return column is not None and column.shape == "[N, *]"


def extends(name: str) -> bool:
    """Whether entries of a ragged column run along all tokens from the row's first."""
    column = find_column(name)
    return column is not None and column.extends


def table() -> str:
    """Format the data dictionary as a Markdown table: shared columns, and those of imported modules by their names."""
    columns = COLUMNS | dict(sorted(_REGISTERED.items()))
    lines = ["| column | shape | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{name}` | `{c.shape}` | {c.unit} | {c.meaning} |" for name, c in columns.items()]
    lines.append("| `obs.*` | `[N, ...]` | policy's own | inputs of the policy, named by its `encode` |")
    lines.append(
        "| `other.<context>.*` | `[N, ...]` | policy's own | the same in another context of the same choices |"
    )
    lines.append("| `next.*` | `[N, ...]` | policy's own | replay buffer: the next observation |")
    return "\n".join(lines) + "\n"
