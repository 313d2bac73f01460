"""RLCoder: rank the candidates of a query, and label the one with the least generator loss on the true completion.

- weights of the completion's tokens: `token_weights`; the loss: `weighted_loss`
- the retriever's choice among candidates: `Retrieval`; the generator's, to be imitated: `LabelledRetrieval`
- the candidates that a trained retriever gives, those above the stop candidate: `keep_above_stop`,
  `RetrievalAboveStop`
"""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.distributed.whole_weights import refuse_sharded
from mmrl.rollouts.base import Rollout, turn_seed
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.transforms.answer_splice import Splice, answer_probabilities, reference_answer
from mmrl.transforms.steps import fit_texts
from mmrl.transforms.text_embedding import prompt_text

STOP = "Don't need cross file context for completion"
"""The candidate that stands for no candidate."""


def token_weights(texts: Sequence[str], first: float = 5.0, identifier: float = 3.0) -> list[float]:
    """Weight of each token of a completion: `first` of the first one, `identifier` of identifiers, 1 of the others.

    Source: RLCoder, 2024, weighted perplexity, arXiv:2407.19487. The released code, DeepSoftwareAnalytics/RLCoder,
    counts tokens from the beginning of a padded batch, so that 5 falls on padding and a first token has 3 or 1.
    """
    names = [text.strip().isidentifier() and not keyword.iskeyword(text.strip()) for text in texts]
    return [first if place == 0 else identifier if name else 1.0 for place, name in enumerate(names)]


def weighted_loss(cross_entropy: Sequence[float], weights: Sequence[float]) -> float:
    """(1 / N) sum_t w_t CE_t over the N tokens of a completion, which is not divided by the sum of the weights.

    Source: RLCoder, 2024, arXiv:2407.19487, and its released code.
    """
    return sum(weight * loss for weight, loss in zip(weights, cross_entropy)) / len(cross_entropy)


def query_of(prompt: Prompt, lines: int) -> str:
    """Return the last lines of a prompt that are not blank."""
    return "\n".join([line for line in prompt_text(prompt).splitlines() if line.strip()][-lines:])


class Retrieval(Rollout):
    """Rollout of one choice: the retriever samples one of its best candidates for a prompt, or the stop candidate.

    The prompt's text is the code before the cursor, its info["candidates"] the texts of the repository, and the output
    is the chosen text, "" for the stop candidate. Source: RLCoder, 2024, arXiv:2407.19487.

    Args:
        num_candidates: with the stop candidate, which is the last one.
        query_lines: lines of the query, the last ones that are not blank.
        stop: text of the stop candidate.
    """

    def __init__(self, num_candidates: int = 10, query_lines: int = 20, stop: str = STOP):
        if num_candidates < 2 or query_lines < 1 or not stop:
            raise ValueError("rollout: need num_candidates >= 2, query_lines >= 1 and a text for stop")
        self.num_candidates, self.query_lines, self.stop = num_candidates, query_lines, stop

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        raws = self.rank([prompt for _, prompt in prompts], ctx)
        entries = [
            (slot, prompt, i, raw) for (slot, prompt), raw in zip(prompts, raws) for i in ctx.sample_indices(slot)
        ]
        requests = [Request(raw, turn_seed(slot, index, ctx)) for slot, _, index, raw in entries]
        out = []
        for (slot, prompt, index, raw), done in zip(entries, ctx.engine.sample(requests, ctx.sampling)):
            turn = Turn(replace(done, output=self._text(raw, int(done.action[0]))))
            out.append(Episode(prompt, slot, index, [turn], ended=done.ended))
        return out

    def rank(self, prompts: Sequence[Prompt], ctx: Context) -> list[dict[str, Any]]:
        """Return the raw observation of each prompt: its query, the retriever's best candidates, and the last one."""
        if not prompts:
            return []
        policy: Any = ctx.policy
        refuse_sharded(policy, "data.rollout (candidates of a query)")
        raws = [{"query": query_of(p, self.query_lines), "candidates": p.info["candidates"]} for p in prompts]
        with evaluation_mode(policy), torch.no_grad():
            columns = policy.collate([policy.encode(raw) for raw in raws])
            logits = policy.logits({name: column.to(policy.device) for name, column in columns.items()})
        best = logits.argsort(dim=1, descending=True, stable=True)[:, : self.num_candidates - 1].tolist()
        top_texts = [[raw["candidates"][i] for i in places] for raw, places in zip(raws, best)]
        return [{**raw, "candidates": [*texts, self.stop]} for raw, texts in zip(raws, top_texts)]

    def _text(self, raw: dict[str, Any], place: int) -> str:
        return raw["candidates"][place] if place < len(raw["candidates"]) - 1 else ""


def keep_above_stop(logits: Sequence[float]) -> list[int]:
    """Places of the candidates with larger logits than the last one, the stop candidate, best first.

    Source: RLCoder, 2024, arXiv:2407.19487: what is ranked below the stop candidate is discarded.
    """
    places = [place for place in range(len(logits) - 1) if logits[place] > logits[-1]]
    return sorted(places, key=lambda place: -logits[place])


class RetrievalAboveStop(Retrieval):
    """Rollout of the stop rule, for evaluation: all candidates that the retriever ranks above the stop candidate.

    The output is their texts, best first, one a line; "" where none is above. Source: RLCoder, 2024, arXiv:2407.19487.

    Args:
        options: those of Retrieval.
    """

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = super().collect(prompts, ctx)
        if not episodes:
            return episodes
        policy: Any = ctx.policy
        raws = self.rank([episode.prompt for episode in episodes], ctx)
        with evaluation_mode(policy), torch.no_grad():
            columns = policy.collate([policy.encode(raw) for raw in raws])
            logits = policy.logits({name: column.to(policy.device) for name, column in columns.items()})
        for episode, raw, row in zip(episodes, raws, logits.tolist()):
            texts = [raw["candidates"][place] for place in keep_above_stop(row)]
            episode.turns = [Turn(replace(episode.turns[0].completion, output="\n".join(texts)))]
        return episodes


class LabelledRetrieval(Retrieval):
    """Demonstrations of the candidate with the least `weighted_loss` of a frozen generator on the true completion.

    The generator reads a candidate, a line break and the code before the cursor; with the stop candidate the code
    alone. Of equal losses the first candidate counts. Source: RLCoder, 2024, arXiv:2407.19487.

    Args:
        generator: name of the model in `model.frozen_models`.
        options: those of Retrieval.
    """

    samples = False

    def __init__(self, generator: str = "generator", **options: Any):
        super().__init__(**options)
        self.generator = generator

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        out = []
        for (slot, prompt), raw in zip(prompts, self.rank([prompt for _, prompt in prompts], ctx)):
            losses = self.losses(prompt, raw, ctx)
            label = losses.index(min(losses))
            done = replace(demonstration(raw, label, ctx), output=self._text(raw, label))
            out.append(Episode(prompt, slot, 0, [Turn(done)], source="demo", info={"losses": losses}))
        return out

    def losses(self, prompt: Prompt, raw: dict[str, Any], ctx: Context) -> list[float]:
        """Return the generator's loss on the completion with each candidate."""
        generator, target = ctx.models[self.generator], reference_answer(prompt, "labelled_retrieval")
        texts = [self._text(raw, place) for place in range(len(raw["candidates"]))]
        before = [f"{text}\n{prompt_text(prompt)}" if text else prompt_text(prompt) for text in texts]
        splices = [Splice(replace(prompt, messages=({"role": "user", "content": b},)), "", target) for b in before]
        weights = token_weights(fit_texts(generator.token_texts(generator.tokenize(target).tolist()), target))
        probabilities = answer_probabilities(splices, replace(ctx, policy=generator), model=self.generator)
        return [weighted_loss((-row.clamp(min=1e-30).log()).tolist(), weights) for row in probabilities]
