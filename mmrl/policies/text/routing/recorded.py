"""Experts that sampling chose: recorded token by token, and matched with the tokens of rows that are scored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mmrl.core.batch import Batch, Ragged
from mmrl.policies.text.routing.routing import Routing

COLUMNS = ("routed_experts", "routed_tokens")


class ExpertRecord:
    """The experts of all tokens that the network reads while completions are sampled.

    Args:
        routing: of the policy.
        step: of the network, as `mmrl.policies.text.generation.generate` takes it.
    """

    def __init__(self, routing: Routing, step: Callable[..., Tensor]):
        self._routing, self._step = routing, step
        self._calls: list[Tensor] = []  # [rows, tokens, layers, k] of the steps so far that are not placed yet
        self._prompts: list[Tensor] = []  # of each prompt [P, layers, k]
        self._tokens: list[tuple[int, Tensor, Tensor]] = []  # choice, its rows, and their experts [rows, layers, k]

    def step(self, inputs: Any, *read: Any) -> Tensor:
        """Run one step and record it."""
        with self._routing.record() as routed:
            logits = self._step(inputs, *read)
        self._calls.append(routed.stack_chosen().unflatten(0, inputs["input_ids"].shape))
        return logits

    def add_prompts(self, attention: Tensor, common: int) -> None:
        """Place the steps over the prompts.

        Args:
            attention: [N, P] mask of the left-padded prompts.
            common: number of first tokens that one step read for all of them, before another read the rest.
        """
        width = attention.shape[1]
        for row, length in enumerate(attention.sum(1).tolist()):
            if common:
                first, rest = self._calls
                self._prompts.append(torch.cat([first[0], rest[row, width - length :]]))
            else:
                self._prompts.append(self._calls[0][row, width - length :])
        self._calls.clear()

    def add_choice(self, choice: int, live: Tensor) -> None:
        """Place the last step, which read choice number `choice` of the rows `live`; a step before it had failed."""
        self._tokens.append((choice, live, self._calls[-1][:, 0]))
        self._calls.clear()

    def build_columns(
        self, ids: Tensor, attention: Tensor, owner: Tensor, choices: Tensor, lengths: Tensor
    ) -> dict[str, Ragged]:
        """Return the columns `COLUMNS` of R completions: of all their tokens but the last choice.

        Args:
            ids, attention: [N, P] of the left-padded prompts.
            owner: [R] the prompt of each completion.
            choices, lengths: [R, T] sampled ids, and how many of them are the row's.
        """
        layers, k = self._prompts[0].shape[1:]
        experts = self._prompts[0].new_full((*choices.shape, layers, k), -1)
        for choice, live, chosen in self._tokens:
            experts[live, choice] = chosen
        rows, tokens = [], []
        for row, (number, length) in enumerate(zip(owner.tolist(), lengths.tolist())):
            rows.append(torch.cat([self._prompts[number], experts[row, : length - 1]]))
            tokens.append(torch.cat([ids[number][attention[number].bool()], choices[row, : length - 1]]))
        sizes = torch.tensor([len(row) for row in rows])
        return dict(zip(COLUMNS, (Ragged(torch.cat(rows), sizes), Ragged(torch.cat(tokens).int(), sizes))))


def match_experts(batch: Batch, prompts: Tensor, prompt_lengths: Tensor, prompt_of: np.ndarray) -> Tensor | None:
    """Match recorded experts with the tokens of U prompts [U, P] and N rows of T choices.

    Experts depend on all tokens before. So those of a token count while the row has the tokens that sampling read.

    Args:
        batch: with or without the columns `COLUMNS`.
        prompts: ids, padded on the left.
        prompt_lengths: [U] tokens of the prompts.
        prompt_of: [N] prompt of each row.

    Returns:
        [U * P + N * T, layers, k] ids of experts, -1 where none are recorded: of each token of the prompts, then for
        each row of the tokens that predict its choices, the last token of the prompt first. None without any.
    """
    if "routed_experts" not in batch or not len(batch["routed_experts"].values):
        return None
    values, lengths = batch["routed_experts"].values, batch["routed_experts"].lengths.to(prompts.device)
    action, (_, width) = batch["action"], prompts.shape
    rows, choices = action.shape
    owner = torch.from_numpy(prompt_of).to(prompts.device)
    before = prompt_lengths.to(prompts.device)[owner]  # [N] tokens of each row's prompt
    # [N, J] place of recorded token j among the tokens of its prompt and choices, and whether all tokens so far agree
    recorded = pad_sequence(list(batch["routed_tokens"].values.long().split(lengths.tolist())), True, -1)
    j = torch.arange(recorded.shape[1], device=prompts.device).expand(rows, -1)
    in_prompt = j < before[:, None]
    of_prompt = prompts[owner].gather(1, (width - before[:, None] + j).clamp(max=width - 1))
    of_choice = action.gather(1, (j - before[:, None]).clamp(0, choices - 1))
    inside = j < before[:, None] + choices
    same = (recorded == torch.where(in_prompt, of_prompt, of_choice)) & inside & (j < lengths[:, None])
    same = same.cumprod(1).bool()
    # experts of a prompt's tokens are those of the row that has most of them
    most = torch.from_numpy(_longest_rows(same.sum(1).cpu().numpy(), prompt_of)).to(prompts.device)
    first = torch.arange(rows, device=prompts.device) == most[owner]
    # token j of a row predicts choice t = j - before + 1
    choice = j - before[:, None] + 1
    row = torch.arange(rows, device=prompts.device)[:, None]
    target = torch.where(
        choice >= 0, prompts.numel() + row * choices + choice, owner[:, None] * width + width - before[:, None] + j
    )
    used = same & torch.where(choice >= 0, choice < choices, first[:, None])
    mask = used[j < lengths[:, None]]  # of the recorded tokens, row after row
    experts = values.new_full((prompts.numel() + action.numel(), *values.shape[1:]), -1)
    experts[target[used]] = values[mask]
    return experts


def _longest_rows(sizes: np.ndarray, prompt_of: np.ndarray) -> np.ndarray:
    """Return for each prompt [U] its row with the largest size."""
    order = np.lexsort((sizes, prompt_of))
    last = np.flatnonzero(np.append(np.diff(prompt_of[order]) != 0, True))
    return order[last]
