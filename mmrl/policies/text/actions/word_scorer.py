"""Scores of admissible strings by a small network over words, as DRRN: for worlds in which models start at random."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from mmrl.core.batch import Batch, Ragged
from mmrl.core.errors import check_at_least
from mmrl.core.messages import join_contents
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.ops.choice import MASKED_LOGIT, draw
from mmrl.ops.logprob import logprob_entropy
from mmrl.policies import policy_folder
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.text.actions.admissible import split_strings


class WordEncoder(nn.Module):
    """Encoding of texts: the last state of a gated recurrent unit over embeddings of their words.

    A word's embedding is that of the bucket of its hash, so that there is no vocabulary to fit.

    Args:
        buckets: of hashes.
        embedding: width of an embedding.
        hidden: H, width of the encoding.
    """

    def __init__(self, buckets: int, embedding: int, hidden: int):
        super().__init__()
        self.embedding = nn.Embedding(buckets, embedding)
        self.gru = nn.GRU(embedding, hidden, batch_first=True)

    def forward(self, words: Tensor, sizes: Tensor) -> Tensor:
        """Encode texts whose words are stored end to end, [sum(sizes)] with sizes [R] of 1 and more, to [R, H]."""
        ids, mask = split_strings(words, sizes)
        # equal texts are encoded once; buckets start at 0, so padding is marked by -1 to tell rows apart
        rows, index = torch.where(mask, ids, -1).unique(dim=0, return_inverse=True)
        lengths = (rows >= 0).sum(1).cpu()
        packed = pack_padded_sequence(
            self.embedding(rows.clamp(min=0)), lengths, batch_first=True, enforce_sorted=False
        )
        return self.gru(packed)[1][0][index]


class WordScorer(Policy):
    """A score of every admissible string of a decision, from recurrent encodings of task, observation and string.

    x(s, a) = w . relu(W [task; observation; a] + b), as the Deep Reinforcement Relevance Network (DRRN). The policy is
    pi(a) = softmax_a(x / temperature); `extra["q"]` of a pass is the score of the action, for methods that fit action
    values. The first message of an observation is the task, and the others together are the observation. A row is a
    decision, and its one choice the index of a string in the observation's `admissible_actions`.

    Source: Deep Reinforcement Learning with a Natural Language Action Space, 2016, arXiv:1511.04636; its form for text
    worlds is that of Interactive Fiction Games: A Colossal Adventure, 2019, arXiv:1909.05398.

    Args:
        buckets: of the hashes of words.
        embedding: width of a word's embedding.
        hidden: width of the encodings, and of the layer that joins them.
        value_head: also predict the return from task and observation.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    chooses_tokens = False

    def __init__(
        self,
        buckets: int = 8192,
        embedding: int = 32,
        hidden: int = 64,
        value_head: bool = False,
        path: str | None = None,
        **options: Any,
    ):
        super().__init__()
        self.path = path
        self.config = policy_folder.resolve(locals(), path, sizes=())
        settings = SimpleNamespace(**self.config)
        check_at_least(1, "policy", buckets=settings.buckets, embedding=settings.embedding, hidden=settings.hidden)
        self.buckets, width = settings.buckets, settings.hidden
        self.encoders = nn.ModuleDict(
            {name: WordEncoder(self.buckets, settings.embedding, width) for name in ("task", "state", "admissible")}
        )
        self.state_layer, self.action_layer = nn.Linear(2 * width, width), nn.Linear(width, width, bias=False)
        self.score_layer = nn.Linear(width, 1)
        self.value_head: nn.Module | None = None
        if settings.value_head:
            self.value_head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))
        self.add_parts(settings)
        policy_folder.load(path, self)

    def add_parts(self, settings: SimpleNamespace) -> None:
        """Add the modules of a subclass, before stored weights are loaded."""

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values"} if init_args.get("value_head") else ())

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return cls.provides(init_args) | {"q"}

    def observation_names(self) -> tuple[str, ...]:
        return ("messages", "admissible_actions")

    # ---------------------------------------------------------------- observations

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        """Hash the words: `task_words` and `state_words` [W], `admissible_words` of all strings and their sizes [K].

        `admissible_text` has the strings themselves in UTF-8, a line each.
        """
        if "admissible_actions" not in raw:
            raise ValueError(
                f"{type(self).__name__} chooses among the admissible actions of an observation, and this one has only "
                f"{sorted(raw)}; choose a task that states them (TextStep.admissible_actions), such as task=house with "
                "rollout=text_environment, or another policy"
            )
        require_inputs(raw, ["messages"], self)
        actions = list(raw["admissible_actions"])
        if len(set(actions)) != len(actions) or not all(action.strip() and "\n" not in action for action in actions):
            raise ValueError(
                f"{type(self).__name__}: admissible actions must be different texts of one line each, got {actions}; "
                "rename them in the task"
            )
        first, *others = raw["messages"]
        strings = [self.hash_words(action) for action in actions]
        return {
            "task_words": torch.tensor(self.hash_words(join_contents([first]))),
            "state_words": torch.tensor(self.hash_words(join_contents(others))),
            "admissible_words": torch.tensor([word for words in strings for word in words]),
            "admissible_sizes": torch.tensor([len(words) for words in strings]),
            "admissible_text": torch.tensor(list("\n".join(actions).encode()), dtype=torch.uint8),
        }

    def hash_words(self, text: str) -> list[int]:
        """The buckets of the words of a text; that of the empty word where there is none."""
        words = re.findall(r"\w+", text.lower()) or [""]
        return [zlib.crc32(word.encode()) % self.buckets for word in words]

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor | Ragged]:
        columns = {name: [observation[name] for observation in observations] for name in observations[0]}
        return {
            name: Ragged(torch.cat(rows), torch.tensor([len(row) for row in rows])) for name, rows in columns.items()
        }

    # ---------------------------------------------------------------- scores

    def score(self, observation: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Scores [N, K] of N collated decisions, `MASKED_LOGIT` beyond their strings, and values [N] or None."""
        state = torch.cat(
            [self.encoders[name](column.values, column.lengths)
             for name, column in (("task", observation["task_words"]), ("state", observation["state_words"]))],
            dim=1,
        )  # fmt: skip
        # R strings of N decisions, one after the other
        actions = self.encoders["admissible"](
            observation["admissible_words"].values, observation["admissible_sizes"].values
        )
        decision, place, shape = find_places(observation)
        hidden = self.state_layer(state)[decision] + self.action_layer(actions)
        scores = self.score_layer(torch.relu(hidden))[:, 0].float()
        padded = scores.new_full(shape, MASKED_LOGIT).index_put((decision, place), scores)
        return padded, None if self.value_head is None else self.value_head(state)[:, 0].float()

    def restrict(self, logits: Tensor, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Tensor:
        """What is sampled from in place of the scores; a subclass may leave actions out."""
        return logits

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        self.check_sampling(sampling)
        logits, values = self.score(observation)
        uniform = noise.uniform().to(logits.device)  # first, so that a subclass's draws change none of these
        number, logprobs, support = draw(
            self.restrict(logits, observation, sampling, noise), uniform, temperature=sampling.temperature,
            top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p, greedy=sampling.decode == "argmax",
        )  # fmt: skip
        mask = torch.ones_like(number, dtype=torch.bool)[:, None]
        extra = {} if support is None else {"support_ids": support[:, None]}
        stored = observation["admissible_text"].cpu()
        texts = [bytes(stored[row].tolist()).decode().split("\n") for row in range(len(stored))]
        output = [texts[row][place] for row, place in enumerate(number.tolist())]
        return Action(number[:, None], logprobs[:, None], mask, output, values=values, extra=extra)

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor | None:
        return None if self.value_head is None else self.score(observation)[1]

    def forward(self, batch: Batch) -> PolicyOutput:
        logits, values = self.score(batch.observation())
        q = logits.gather(1, batch["action"])
        logprobs, entropy = logprob_entropy(
            logits[:, None], batch["action"], batch["temperature"], batch.get("support_ids")
        )
        return PolicyOutput(logprobs, entropy, values, {"q": q[..., None]})

    # ---------------------------------------------------------------- demonstrations and files

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        actions = list(raw["admissible_actions"])
        if output not in actions:
            raise ValueError(f"the demonstrated action {output!r} is not admissible; there are {actions}")
        return torch.tensor([actions.index(output)])

    def save_pretrained(self, folder: str | Path) -> None:
        policy_folder.save(folder, self.config, self)


def find_places(observation: Mapping[str, Any]) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Decision [R] and place in it [R] of strings that are stored one after the other, and the shape (N, K)."""
    counts = observation["admissible_sizes"].lengths.to(observation["admissible_words"].device)
    decision = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    place = torch.arange(len(decision), device=counts.device) - (counts.cumsum(0) - counts)[decision]
    return decision, place, (len(counts), int(counts.max()))
