"""Token ids of admissible strings: checks, and rows of strings that are stored end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from mmrl.ops.choice import MASKED_LOGIT


def encode_strings(
    actions: Sequence[str], tokenizer: Any, forbidden: Sequence[int], end: Sequence[int] = ()
) -> list[list[int]]:
    """Tokenize the admissible strings of a decision.

    Args:
        actions: the strings.
        tokenizer: of the language model.
        forbidden: ids that stand for other inputs, such as images.
        end: ids after each string.

    Raises:
        ValueError: no string, an empty one, two equal ones, one with a forbidden id, or one that the tokenizer cannot
            write.
    """
    if isinstance(actions, str) or not len(actions):
        raise ValueError(
            f"policy=action_scorer: admissible_actions must be a list of at least one string, got {actions!r}; an "
            "episode without an action has to end"
        )
    if wrong := [action for action in actions if not isinstance(action, str) or not action.strip()]:
        raise ValueError(f"policy=action_scorer: the admissible action {wrong[0]!r} has no text; name every action")
    ids = tokenizer(list(actions), add_special_tokens=False)["input_ids"]
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    first: dict[tuple[int, ...], str] = {}
    for action, tokens, text in zip(actions, ids, texts):
        if never := sorted(set(tokens) & set(forbidden)):
            raise ValueError(
                f"policy=action_scorer: the admissible action {action!r} holds "
                f"{tokenizer.convert_ids_to_tokens(never)}, which stands for another input of the model, such as an "
                "image; rename the action"
            )
        if text != action:
            raise ValueError(
                f"policy=action_scorer: the tokenizer writes the admissible action {action!r} as {text!r}; rename the "
                "action, so that what the environment reads is what was scored"
            )
        if (other := first.get(tuple(tokens))) is not None:
            raise ValueError(
                f"policy=action_scorer: the admissible actions {other!r} and {action!r} have the same tokens, and so "
                "the same score; name each action once"
            )
        first[tuple(tokens)] = action
    return [[*tokens, *end] for tokens in ids]


def split_strings(ids: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Split strings that are stored end to end into padded rows.

    Args:
        ids: [sum(sizes)].
        sizes: [R] tokens of each string.

    Returns:
        Ids [R, L], 0 beyond a string, and their mask [R, L].
    """
    mask = torch.arange(int(sizes.max()), device=ids.device) < sizes[:, None]
    return ids.new_zeros(mask.shape).masked_scatter(mask, ids), mask


def arrange_scores(logprobs: Tensor, mask: Tensor, counts: Tensor, reduction: Literal["sum", "mean"]) -> Tensor:
    """Turn log-probs of the tokens of strings into the logits of decisions.

    Args:
        logprobs: [R, L] in nats, 0 beyond a string.
        mask: [R, L], the tokens of each string.
        counts: [N] strings of each decision, which sum to R.
        reduction: of a string's tokens to its score.

    Returns:
        Logits [N, K], the largest of a row 0 and `MASKED_LOGIT` beyond its strings.
    """
    scores = logprobs.sum(1)
    if reduction == "mean":
        scores = scores / mask.sum(1)
    # decision of each string, and its place there
    decision = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    place = torch.arange(len(scores), device=counts.device) - (counts.cumsum(0) - counts)[decision]
    logits = scores.new_full((len(counts), int(counts.max())), -torch.inf).index_put((decision, place), scores)
    return (logits - logits.detach().amax(1, keepdim=True)).clamp(min=MASKED_LOGIT)
