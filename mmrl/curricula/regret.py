"""PAIRED: a teacher that is paid the regret between two students, who both play every level it proposes.

Emergent Complexity and Zero-shot Transfer via Unsupervised Environment Design, 2020, arXiv:2012.02096.

- regret of the protagonist against the antagonist: `paired_regret`
- regret of whichever student is worse: `flexible_regret`
- a teacher whose actions are points of a box: `GaussianTeacher`
- the curricula: `RegretLevels`, `PAIRED`, `UniformPairs`
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any, Literal

import numpy as np

from mmrl.core.errors import ConfigError, check_at_least, check_positive
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode
from mmrl.curricula.levels import LevelCurriculum, find_levels

PROTAGONIST, ANTAGONIST = 0, 1
Returns = Sequence[float]


def paired_regret(protagonist: Returns, antagonist: Returns) -> float:
    """max(0, best return of the antagonist - mean return of the protagonist) at one level.

    Source: PAIRED, 2020, arXiv:2012.02096, algorithm 1.
    """
    return max(0.0, max(antagonist) - mean(protagonist))


def flexible_regret(protagonist: Returns, antagonist: Returns) -> float:
    """max(0, best return of the better student - mean return of the other one) at one level.

    The better student is the one with the higher best return; of two equal ones the antagonist.
    Source: CLUTR, 2022, arXiv:2210.10243, section 4 (flexible regret, after PAIRED's appendix).
    """
    if max(protagonist) > max(antagonist):
        protagonist, antagonist = antagonist, protagonist
    return paired_regret(protagonist, antagonist)


REGRETS: dict[str, Callable[[Returns, Returns], float]] = {"paired": paired_regret, "flexible": flexible_regret}


class GaussianTeacher:
    """A Gaussian over actions in [-1, 1]^d, whose mean and deviation learn by PPO on episodes of one step.

    Advantages are rewards, whitened over the update; the objective is the clipped one plus `entropy_coef` times the
    entropy, ascended by Adam in `epochs` steps on all actions. Deviations stay in [0.05, 1].
    Source: Proximal Policy Optimization Algorithms, 2017, equation 7, arXiv:1707.06347.

    Args:
        dims: d.
        lr: learning rate of Adam.
        epochs: steps of an update.
        clip: half-width of the interval of probability ratios.
        entropy_coef: coefficient of the entropy, nats.
        deviation: standard deviation of all dimensions at the beginning.
    """

    _MOMENTS = ("first", "second")

    def __init__(
        self,
        dims: int,
        lr: float,
        epochs: int = 5,
        clip: float = 0.2,
        entropy_coef: float = 0.0,
        deviation: float = 0.5,
    ):
        self.lr, self.epochs, self.clip, self.entropy_coef = lr, epochs, clip, entropy_coef
        self.parameters = np.stack([np.zeros(dims), np.full(dims, np.log(deviation))])  # [2, d] means, log deviations
        self.first, self.second, self.steps = np.zeros((2, dims)), np.zeros((2, dims)), 0

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw an action [d]; what leaves the box is cut off where it is used."""
        centre, spread = self.parameters
        return centre + np.exp(spread) * rng.standard_normal(len(centre))

    def learn(self, actions: np.ndarray, rewards: np.ndarray) -> None:
        """Update by the rewards [n] of actions [n, d] that were drawn since the update before."""
        deviation = rewards.std()
        if deviation == 0:
            return
        advantages = (rewards - rewards.mean()) / deviation
        before = self.parameters.copy()
        for _ in range(self.epochs):
            gradient = ppo_gradient(self.parameters, before, actions, advantages, self.clip)
            gradient[1] += self.entropy_coef  # the entropy of a Gaussian is the sum of its log deviations
            self._ascend(gradient)

    def _ascend(self, gradient: np.ndarray) -> None:
        """One step of Adam with betas 0.9 and 0.999."""
        self.steps += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        mean_gradient = self.first / (1 - 0.9**self.steps)
        scale = np.sqrt(self.second / (1 - 0.999**self.steps)) + 1e-8
        self.parameters = self.parameters + self.lr * mean_gradient / scale
        self.parameters[0] = np.clip(self.parameters[0], -1, 1)
        self.parameters[1] = np.clip(self.parameters[1], np.log(0.05), 0.0)

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name).tolist() for name in ("parameters", *self._MOMENTS)}
        return {**arrays, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("parameters", *self._MOMENTS):
            setattr(self, name, np.array(state[name]))
        self.steps = state["steps"]


def ppo_gradient(
    parameters: np.ndarray, before: np.ndarray, actions: np.ndarray, advantages: np.ndarray, clip: float
) -> np.ndarray:
    """Gradient [2, d] of mean(min(r A, clip(r, 1 - clip, 1 + clip) A)) of a Gaussian by its means and log deviations.

    Args:
        parameters: means and log deviations, [2, d].
        before: those that the actions were drawn from, [2, d].
        actions: [n, d].
        advantages: A, [n].
        clip: half-width of the interval of ratios r.
    """
    logprobs = [(-0.5 * ((actions - m) / np.exp(s)) ** 2 - s).sum(axis=1) for m, s in (parameters, before)]
    ratios = np.exp(logprobs[0] - logprobs[1])  # [n]
    clipped = ((advantages > 0) & (ratios > 1 + clip)) | ((advantages < 0) & (ratios < 1 - clip))
    weights = np.where(clipped, 0.0, ratios * advantages) / len(actions)
    scaled = (actions - parameters[0]) / np.exp(parameters[1])  # [n, d]
    by_mean = (weights[:, None] * scaled / np.exp(parameters[1])).sum(axis=0)
    by_spread = (weights[:, None] * (scaled**2 - 1)).sum(axis=0)
    return np.stack([by_mean, by_spread])


class RegretLevels(LevelCurriculum):
    """Base class of curricula whose levels are played by two students each, and judged by the regret.

    Of `count` problems half are levels: problem 2k and 2k + 1 are level k for the protagonist and for the antagonist
    (`StudentLevelSim`). A level whose two groups ended without errors is one observation, the regret between their
    returns.

    Args:
        regret: "paired" or "flexible" (`paired_regret`, `flexible_regret`).
        score_name: what is compared; "return": the sum of the rewards of the whole episode.
    """

    def __init__(self, regret: Literal["paired", "flexible"] = "paired", score_name: str = "return"):
        super().__init__(score_name)
        if regret not in REGRETS:
            raise ValueError(f"curriculum.regret must be one of {sorted(REGRETS)}, got {regret!r}")
        self.regret = regret
        self._actions: dict[int, np.ndarray] = {}  # by problem of the protagonist; of levels not yet judged
        self._partner: dict[int, int] = {}  # by problem of the antagonist, that of the protagonist

    @abstractmethod
    def propose(self, dims: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw a teacher's action, and the level of the unit cube [dims] that it stands for."""

    def judge(self, actions: np.ndarray, regrets: np.ndarray) -> None:
        """Learn from the regrets [n] of an iteration's actions [n, d]."""

    def draw(self, dims: int, rng: np.random.Generator) -> np.ndarray:
        return self.propose(dims, rng)[1]

    def prepare(self, dims: int, ctx: Context) -> None:
        """Make what `propose` needs when the number of parameters is known."""

    def select(self, count: int, ctx: Context) -> list[int]:
        if count % 2:
            raise ConfigError(f"data.num_prompts={count} must be even: two students play every level")
        task = find_levels(ctx.task)
        low, high = np.array(list(task.level_bounds.values())).T
        self.prepare(len(low), ctx)
        self._actions, self._partner, indices = {}, {}, []
        for number in range(self.drawn, self.drawn + count // 2):
            rng = derive_rng("levels", ctx.seed, number)
            action, point = self.propose(len(low), rng)
            values = np.clip(low + np.clip(point, 0.0, 1.0) * (high - low), low, high).tolist()
            level, start = dict(zip(task.level_bounds, values)), 2 * int(rng.integers(2048))
            first, second = (task.level_index(level, start + student) for student in (PROTAGONIST, ANTAGONIST))
            self._actions[first], self._partner[second] = action, first
            indices += [first, second]
        self.drawn += count // 2
        return indices

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        returns: dict[int, dict[int, list[float]]] = {}
        for group in sorted(groups, key=lambda group: group[0].group):
            index = group[0].prompt.index
            first = self._partner.get(index, index)
            ended = [self._score(episode) for episode in group if episode.ended in ("done", "time")]
            if ended and first in self._actions:
                student = ANTAGONIST if index in self._partner else PROTAGONIST
                returns.setdefault(first, {}).setdefault(student, []).extend(ended)
        judged = {first: pair for first, pair in returns.items() if len(pair) == 2}
        if judged:
            measure = REGRETS[self.regret]
            regrets = np.array([measure(pair[PROTAGONIST], pair[ANTAGONIST]) for pair in judged.values()])
            self.judge(np.stack([self._actions[first] for first in judged]), regrets)


class UniformPairs(RegretLevels):
    """Uniform levels, each for both students: domain randomisation with the budget of `PAIRED`."""

    def propose(self, dims: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        point = rng.random(dims)
        return point, point


class PAIRED(RegretLevels):
    """PAIRED: levels from a teacher that learns by RL to raise the regret between two students.

    The teacher is a Gaussian over [-1, 1]^D (`GaussianTeacher`), whose action is scaled to the box of the levels.
    Source: Emergent Complexity and Zero-shot Transfer via Unsupervised Environment Design, 2020, arXiv:2012.02096,
    algorithm 1.

    Args:
        lr: learning rate of the teacher.
        entropy_coef: coefficient of the teacher's entropy.
        regret: "paired" or "flexible".
        score_name: what is compared; "return": the sum of the rewards of the whole episode.
    """

    deviation = 0.5  # of the teacher's actions at the beginning, in each dimension

    def __init__(
        self,
        lr: float = 0.01,
        entropy_coef: float = 0.01,
        regret: Literal["paired", "flexible"] = "paired",
        score_name: str = "return",
    ):
        super().__init__(regret, score_name)
        check_positive("curriculum", lr=lr)
        check_at_least(0, "curriculum", entropy_coef=entropy_coef)
        self.lr, self.entropy_coef = lr, entropy_coef
        self.teacher: GaussianTeacher | None = None

    def action_dims(self, dims: int) -> int:
        """Dimensions of the teacher's action, for levels of `dims` parameters."""
        return dims

    def decode(self, action: np.ndarray) -> np.ndarray:
        """The level of the unit cube that an action in [-1, 1]^d stands for."""
        return (action + 1) / 2

    def prepare(self, dims: int, ctx: Context) -> None:
        if self.teacher is None:
            self.teacher = self._new_teacher(self.action_dims(dims))

    def _new_teacher(self, dims: int) -> GaussianTeacher:
        return GaussianTeacher(dims, self.lr, entropy_coef=self.entropy_coef, deviation=self.deviation)

    def propose(self, dims: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        assert self.teacher is not None  # made by `prepare`
        action = self.teacher.draw(rng)
        return action, self.decode(np.clip(action, -1, 1))

    def judge(self, actions: np.ndarray, regrets: np.ndarray) -> None:
        assert self.teacher is not None
        self.teacher.learn(actions, regrets)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "teacher": None if self.teacher is None else self.teacher.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if state["teacher"] is not None:
            self.teacher = self._new_teacher(len(state["teacher"]["parameters"][0]))
            self.teacher.load_state_dict(state["teacher"])
