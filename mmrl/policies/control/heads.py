"""Action heads for one choice per row (T = 1): a layer that gives a distribution, which acting and scoring share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.ops.choice import MASKED_LOGIT, inverse_cdf, support

LOG_STD_RANGE = (-5.0, 2.0)  # bounds of a state-dependent log-std, which keep the density finite


class Choices(ABC):
    """Distribution over the choices of N rows; the same object samples choices and scores stored ones."""

    @abstractmethod
    def sample(self, noise: Noise) -> Tensor:
        """[N, 1, ...] choices; row i is a function of noise stream i."""

    @abstractmethod
    def logprobs(self, action: Tensor) -> Tensor:
        """[N, 1] nats of stored choices [N, 1, ...]."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """[N, 1] nats."""

    @abstractmethod
    def mode(self) -> Tensor:
        """[N, 1, ...] the most likely choices."""

    @abstractmethod
    def mean(self) -> Tensor:
        """[N, 1, ...] expectation, where choices are ordered."""

    @abstractmethod
    def truncate(self, sampling: Sampling) -> Choices:
        """Return the distribution truncated by top_k, top_p and min_p."""

    def draw(self, sampling: Sampling, noise: Noise) -> Tensor:
        """[N, 1, ...] choices, decoded as `sampling.decode` says."""
        if sampling.decode == "sample":
            return self.sample(noise)
        return self.mode() if sampling.decode == "argmax" else self.mean()


@dataclass(frozen=True)
class Categorical(Choices):
    """p(a) = softmax(logits)_a over the actions in the support; choices are ids [N, 1]."""

    logits: Tensor  # [N, A], temperature already applied
    support_ids: Tensor | None = None  # [N, 1, K] ids that truncated sampling can draw, -1 fills up; None for all

    def sample(self, noise: Noise) -> Tensor:
        """Ids by the inverse CDF at a uniform draw."""
        probabilities = self._log_softmax.exp()
        return inverse_cdf(probabilities, noise.uniform().to(probabilities.device))[:, None]

    def logprobs(self, action: Tensor) -> Tensor:
        return self._log_softmax.gather(1, action)

    def entropy(self) -> Tensor:
        logp = self._log_softmax
        return -(logp.exp() * logp.clamp(min=MASKED_LOGIT)).sum(dim=-1, keepdim=True)  # 0 * log 0 = 0

    def mode(self) -> Tensor:
        return self.logits.argmax(dim=-1, keepdim=True)

    def mean(self) -> Tensor:
        raise ValueError(
            "sampling.decode=mean needs ordered choices; a categorical policy takes decode=argmax or decode=sample"
        )

    def truncate(self, sampling: Sampling) -> Categorical:
        ids = support(self.logits.float(), sampling.top_k, sampling.top_p, sampling.min_p)
        return self.restrict(ids[:, None])

    def restrict(self, support_ids: Tensor) -> Categorical:
        """Restrict the distribution to the ids in `support_ids` [N, 1, K]; -1 is padding; without an id all stay."""
        ids = support_ids[:, 0]
        # the padding ids -1 are written to an extra column
        allowed = torch.zeros(len(ids), self.logits.shape[1] + 1, dtype=torch.bool, device=ids.device)
        allowed.scatter_(1, ids.where(ids >= 0, self.logits.shape[1]), True)
        allowed |= (ids < 0).all(1, keepdim=True)
        return replace(self, logits=self.logits.masked_fill(~allowed[:, :-1], MASKED_LOGIT), support_ids=support_ids)

    @cached_property
    def _log_softmax(self) -> Tensor:  # [N, A]
        return self.logits.float().log_softmax(dim=-1)


@dataclass(frozen=True)
class MultiCategorical(Choices):
    """Independent categorical distributions, one for each number of the action: choices are ids [N, 1, D].

    The log-probability and the entropy of a choice are the sums over its D numbers.
    """

    parts: tuple[Categorical, ...]  # D, each over its number of actions

    def sample(self, noise: Noise) -> Tensor:
        """Ids by the inverse CDF at uniform draws, one for each number."""
        levels = noise.uniform(len(self.parts)).to(self.parts[0].logits.device)
        return self._join(inverse_cdf(part._log_softmax.exp(), level) for part, level in zip(self.parts, levels.T))

    def logprobs(self, action: Tensor) -> Tensor:
        numbers = action[:, 0].unbind(dim=1)
        return torch.stack([part.logprobs(ids[:, None]) for part, ids in zip(self.parts, numbers)]).sum(dim=0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(dim=0)

    def mode(self) -> Tensor:
        return self._join(part.mode()[:, 0] for part in self.parts)

    def mean(self) -> Tensor:
        return self.parts[0].mean()

    def truncate(self, sampling: Sampling) -> MultiCategorical:
        raise ValueError(
            f"a policy of several numbers cannot drop unlikely choices (sampling.top_k={sampling.top_k}, "
            f"sampling.top_p={sampling.top_p}, sampling.min_p={sampling.min_p}); lower sampling.temperature instead"
        )

    @staticmethod
    def _join(ids: Iterable[Tensor]) -> Tensor:
        return torch.stack(list(ids), dim=-1)[:, None]


@dataclass(frozen=True)
class Gaussian(Choices):
    """N(loc, exp(log_std)^2) with independent dimensions, summed to one choice: action [N, 1, A]."""

    loc: Tensor  # [N, A]
    log_std: Tensor  # [N, A], temperature already applied

    def sample(self, noise: Noise) -> Tensor:
        epsilon = noise.normal(self.loc.shape[1]).to(self.loc.device)
        return torch.addcmul(self.loc, self.log_std.exp(), epsilon)[:, None]

    def logprobs(self, action: Tensor) -> Tensor:
        """-sum_a ((x_a - loc_a) / std_a)^2 / 2 + log std_a + log(2 pi) / 2."""
        score = (action[:, 0] - self.loc) * (-self.log_std).exp()
        return -(0.5 * score**2 + self.log_std + 0.5 * math.log(2 * math.pi)).sum(dim=-1, keepdim=True)

    def entropy(self) -> Tensor:
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=-1, keepdim=True)

    def mode(self) -> Tensor:
        return self.loc[:, None]

    def mean(self) -> Tensor:
        return self.loc[:, None]

    def truncate(self, sampling: Sampling) -> Gaussian:
        raise ValueError(
            f"a Gaussian policy cannot drop unlikely choices (sampling.top_k={sampling.top_k}, "
            f"sampling.top_p={sampling.top_p}, sampling.min_p={sampling.min_p}); lower sampling.temperature instead"
        )


class Head(nn.Module, ABC):
    """Layer from features [N, F] to a distribution over the choices of each row."""

    @abstractmethod
    def forward(self, features: Tensor, temperature: Tensor, legal: Tensor | None = None) -> Choices:
        """Return the distribution at `temperature` [N]: above 1 it is flatter, below 1 sharper.

        Args:
            legal: [N, actions] 0 where an action must not be chosen; None where all may be. Numbered actions only.
        """


class CategoricalHead(Head):
    """Linear logits, divided by the temperature; actions that are not legal have probability 0."""

    def __init__(self, features: int, actions: int):
        super().__init__()
        self.linear = nn.Linear(features, actions)

    def forward(self, features: Tensor, temperature: Tensor, legal: Tensor | None = None) -> Categorical:
        return Categorical(self._logits(features, temperature, legal))

    def _logits(self, features: Tensor, temperature: Tensor, legal: Tensor | None) -> Tensor:
        logits = self.linear(features).float() / temperature[:, None]
        return logits if legal is None else logits.masked_fill(legal == 0, MASKED_LOGIT)


class MultiCategoricalHead(CategoricalHead):
    """Linear logits of several numbers side by side.

    Args:
        features: F, width of the input.
        counts: how many actions each number has.
    """

    def __init__(self, features: int, counts: Sequence[int]):
        super().__init__(features, sum(counts))
        self.counts = list(counts)

    def forward(  # type: ignore[override]
        self, features: Tensor, temperature: Tensor, legal: Tensor | None = None
    ) -> MultiCategorical:
        logits = self._logits(features, temperature, legal)
        return MultiCategorical(tuple(map(Categorical, logits.split(self.counts, dim=-1))))


class GaussianHead(Head):
    """Linear mean and a standard deviation that the temperature multiplies.

    Args:
        features: F, width of the input.
        actions: A, dimensions of the action.
        log_std: initial logarithm of the standard deviation.
        state_dependent: whether log_std is a linear function of the features, or one parameter per dimension.
    """

    def __init__(self, features: int, actions: int, log_std: float = 0.0, state_dependent: bool = False):
        super().__init__()
        self.linear = nn.Linear(features, actions)
        self.start = log_std
        self.log_std_head = nn.Linear(features, actions) if state_dependent else None
        self.log_std = None if state_dependent else nn.Parameter(torch.full((actions,), float(log_std)))

    def forward(self, features: Tensor, temperature: Tensor, legal: Tensor | None = None) -> Gaussian:
        loc = self.linear(features).float()
        if self.log_std_head is None:
            log_std = self.log_std.float()  # type: ignore[union-attr]
        else:
            log_std = (self.log_std_head(features).float() + self.start).clamp(*LOG_STD_RANGE)
        return Gaussian(loc, log_std + temperature.log()[:, None])
