"""The data dictionary: every column of a Batch, with shape, unit and meaning. docs/columns.md is made from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """Description of one column: shape, unit and meaning."""

    shape: str
    unit: str
    meaning: str
    pad: float = 0  # padding of the choices beyond a row's own T, and the value in rows that may lack the column


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
    "self_reward_weight": Column("[N]", "1", "weight of the row's self-reward in a loss, 0 without one"),
    "self_reward": Column("[N]", "reward", "reward that the policy's self-reward token implies, before the update"),
    "packed_support_ids": Column(
        "[N, *]",
        "ids",
        "token ids that truncated sampling can draw for the choices of the row, one choice after the other",
    ),
    "support_sizes": Column(
        "[N, T]", "ids", "how many of `packed_support_ids` belong to the choice; 0 where nothing restricted it"
    ),
    "support_ids": Column(
        "[N, T, K]",
        "ids",
        "ids that truncated sampling can draw, where there are few: bins or actions; -1 fills up, and is all there is "
        "where nothing restricted the choice",
        pad=-1,
    ),
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
    "preference": Column("[N]", "1", "1 preferred, -1 not, within its group; 0 neither"),
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
    "nucleus_entropy": Column("[N, T]", "nats", "entropy of the most likely ids alone, before the update"),
    "min_p_probs": Column(
        "[N, T]", "1", "probability of each choice after min-p filtering, before the update; 0 where it is filtered out"
    ),
    "old_mean_logprobs": Column(
        "[N, T]", "nats", "mean log-probability over the vocabulary at each choice, before the update"
    ),
    "visual_ids": Column("[N, *]", "ids", "codes of the image tokens of the row, all levels of a token together"),
    "feature_mask": Column("[N, T]", "bool", "tokens that name a feature which an expert finds salient"),
    "clip_high": Column("[N]", "1", "upper clip range of the row's importance ratios: they are clipped at 1 + it"),
    "kl_weights": Column("[N, T]", "1", "weight of the KL penalty at each choice, from the reference's certainty"),
    "penalty_slope": Column("[N, T]", "1", "slope of a penalty on a mean over the batch, per choice"),
    "reward_logprobs": Column(
        "[N, T]", "nats", "log-probability of each choice under a reward model, before the update"
    ),
    "imitation_mask": Column("[N, T]", "bool", "forced tokens, such as those of a hint, that the policy imitates"),
    "imitation_weights": Column("[N, T]", "1", "weight of a choice in an imitation loss, 0 where it is not imitated"),
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

OPTIONAL = frozenset({"packed_support_ids", "support_sizes", "support_ids"})
"""Columns that some rows of a batch may lack: those that truncated sampling did not draw, such as demonstrations."""

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


def per_choice(name: str) -> bool:
    """Whether a column has an entry for every choice."""
    return name in COLUMNS and COLUMNS[name].shape.startswith("[N, T")


def pad_value(name: str) -> float:
    """Return the padding value of a column for rows with fewer choices."""
    return COLUMNS[name].pad if name in COLUMNS else 0


def is_ragged(name: str) -> bool:
    """Whether rows of this column have different lengths, other than their numbers of choices."""
    return name in COLUMNS and COLUMNS[name].shape == "[N, *]"


def table() -> str:
    """Format the data dictionary as a Markdown table."""
    lines = ["| column | shape | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{name}` | `{c.shape}` | {c.unit} | {c.meaning} |" for name, c in COLUMNS.items()]
    lines.append("| `obs.*` | `[N, ...]` | policy's own | inputs of the policy, named by its `encode` |")
    lines.append(
        "| `other.<context>.*` | `[N, ...]` | policy's own | the same in another context of the same choices |"
    )
    lines.append("| `next.*` | `[N, ...]` | policy's own | replay buffer: the next observation |")
    return "\n".join(lines) + "\n"
