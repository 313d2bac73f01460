"""RL-GPT's rollouts: rounds of splitting, coding and criticism, and episodes with the coded macro-actions.

RL-GPT, 2024, arXiv:2402.19299, section 3.

- simulators with macro-actions: `MacroSim`, `find_macro_sim`
- training: `RLGPT`
- evaluation, with the policy's programs: `MacroEpisodic`
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Sim
from mmrl.methods.exploration.rl_gpt.agents import MacroAgents, MacroUse, RoundFeedback
from mmrl.methods.exploration.rl_gpt.library import MacroLibrary, ProgramTrial
from mmrl.methods.exploration.rl_gpt.policy import MacroPolicy
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.exchange import exchange_sim
from mmrl.rollouts.options import add_durations

_NEED = "rollout=rl_gpt needs a policy that keeps the steps played: take policy=macros"
SKILL = "skill/"
"""Before the name of an item in the scores of an episode: whether it was had."""


@runtime_checkable
class MacroSim(Protocol):
    """A simulator of recipes whose last `slots` actions are programs.

    Its environments have `named_states()` and `failures`, errors by number of the program; their episodes the scores
    `skill/ITEM` and `decisions`, primitive steps.
    """

    items: Sequence[str]
    needs: tuple[np.ndarray, np.ndarray]
    makes: np.ndarray
    target: str
    slots: int
    macro_steps: int
    action_names: Sequence[str]  # of the primitive actions

    def with_programs(self, programs: Sequence[str]) -> Sim:
        """The same simulator with these programs, "" for none."""

    def build_program(self, source: str, name: str) -> Any:
        """The program of a source, whose `plan(states)` gives actions and errors; raises a ProgramError."""


def find_macro_sim(ctx: Context) -> Any:
    """The simulator of a context's task, with macro-actions of which the policy has the programs.

    Raises:
        ConfigError: the simulator has none, or the policy has no room for their programs.
    """
    sim = simulator_of(ctx.task, "rollout=rl_gpt")
    if not isinstance(sim, MacroSim):
        raise ConfigError(
            f"rollout=rl_gpt plays programs as macro-actions, and sim {sim.name!r} has none: take sim=craft_macros, "
            "and sim.workers=0"
        )
    if not isinstance(ctx.policy, MacroPolicy) or ctx.policy.config["slots"] != sim.slots:
        raise ConfigError(
            f"rollout=rl_gpt needs a policy with the programs of {sim.slots} macro-actions: take policy=macros"
        )
    return sim


class RLGPT(EpisodicRollout):
    """RL-GPT: as `EpisodicRollout`, with macro-actions whose programs agents write in rounds.

    At the start of a round the critic advises (from the second round on), the slow agent splits the task, and the fast
    agent writes the programs that are codable and not there yet, or that failed while training; each is tried in
    recorded states and mended from its errors. What is no longer codable loses its program. Rows have `durations`,
    which `OptionGAE` discounts by. One process only. Source: RL-GPT, 2024, arXiv:2402.19299, section 3.

    Args:
        agents: slow agent, fast agent and critic; None for no macro-actions, the baseline.
        rounds: of splitting; afterwards the programs stay.
        round_iterations: iterations of a round.
        attempts: answers of an agent to a question before it is given up.
        trials: initial states in which, and after random actions from which, a program is tried.
        options: further arguments of `EpisodicRollout`.
    """

    def __init__(
        self,
        agents: MacroAgents | None = None,
        rounds: int = 4,
        round_iterations: int = 3,
        attempts: int = 3,
        trials: int = 8,
        **options: Any,
    ):
        super().__init__(**options)
        check_at_least(1, "rollout", rounds=rounds, round_iterations=round_iterations, attempts=attempts, trials=trials)
        self.agents, self.rounds, self.round_iterations = agents, rounds, round_iterations
        self.attempts, self.trials = attempts, trials
        self.library = MacroLibrary()
        self._round = -1  # that the programs were written for
        self._success: dict[str, list[float]] = {}  # of the round, by item: sum and episodes
        self._uses: dict[str, list[float]] = {}  # of the round, by macro-action: decisions and steps
        self._rows = 0.0  # decisions of the round
        self._metrics: dict[str, float] = {}

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"durations"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if ctx.world_size > 1:
            raise ConfigError("rollout=rl_gpt keeps its programs in one process; set trainer.devices=1")
        sim = find_macro_sim(ctx)
        number = min(ctx.iteration // self.round_iterations, self.rounds - 1)
        if self.agents is not None and number > self._round:
            self._begin_round(sim, ctx)
            self._round = number
        policy: Any = ctx.policy
        programs = self.library.sources(sim.slots)
        policy.write_programs(programs)
        episodes = super().collect(prompts, exchange_sim(ctx, sim.with_programs(programs)))
        for episode in episodes:
            add_durations(episode, _NEED)
        env: Any = self._env
        for slot, errors in env.failures.items():
            self.library.note_errors(slot, errors)
        env.failures = {}
        self._count(episodes, len(sim.action_names))
        return episodes

    def _begin_round(self, sim: Any, ctx: Context) -> None:
        """Ask critic, slow agent and fast agent; the library has the programs afterwards."""
        states = record_states(sim, ctx, self.trials)
        rows = max(self._rows, 1.0)
        uses = {
            name: MacroUse(count / rows, steps / max(count, 1.0), self.library.errors.get(name, ()))
            for name, (count, steps) in self._uses.items()
        }
        success = {name: total / episodes for name, (total, episodes) in self._success.items()}
        feedback = RoundFeedback(
            list(sim.items), sim.needs, sim.makes, sim.target, list(sim.action_names), states[0], sim.slots,
            sim.macro_steps, success, uses, self.library.split,
        )  # fmt: skip
        room = ctx.policy.config["program_bytes"]  # type: ignore[union-attr]
        trial = ProgramTrial(sim.build_program, states, room)
        self.library.write(self.agents, feedback, trial, self.attempts)  # type: ignore[arg-type]
        self._success, self._uses, self._rows = {}, {}, 0.0

    def _count(self, episodes: Sequence[Episode], primitives: int) -> None:
        """Count decisions and steps of the macro-actions in these episodes, of the iteration and of the round."""
        counts: dict[str, list[float]] = {name: [0.0, 0.0] for name in self.library.names if name}
        rows = steps = 0.0
        for turn in (turn for episode in episodes for turn in episode.turns):
            duration, slot = float(turn.completion.extra["durations"]), int(turn.completion.output) - primitives
            rows, steps = rows + 1, steps + duration
            if slot >= 0:
                count = counts[self.library.names[slot]]
                count[0], count[1] = count[0] + 1, count[1] + duration
        for name, (count, played) in counts.items():
            use = self._uses.setdefault(name, [0.0, 0.0])
            use[0], use[1] = use[0] + count, use[1] + played
        self._rows += rows
        rows = max(rows, 1.0)
        shares = {f"macros/share/{name}": count / rows for name, (count, _) in counts.items()}
        macros = sum(count for count, _ in counts.values())
        self._metrics = {
            "macros/share": macros / rows,
            "macros/duration": steps / rows,
            "macros/steps": steps,
            **shares,
        }

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Count in how many finished episodes of the round each item was had."""
        super().observe(groups)
        for episode in (each for group in groups for each in group if each.ended in ("done", "time")):
            for name in (name for name in episode.scores if name.startswith(SKILL)):
                total = self._success.setdefault(name.removeprefix(SKILL), [0.0, 0.0])
                total[0], total[1] = total[0] + float(episode.scores[name] > 0), total[1] + 1

    def metrics(self) -> dict[str, float]:
        """Share of macro-actions among the decisions, of all and of each; mean steps of a decision, their sum; round.

        And of the programs how many there are, answers, programs mended, given up, and failures in training.
        """
        return {**self._metrics, **self.library.metrics(), "macros/round": float(self._round)}

    def state_dict(self) -> dict[str, Any]:
        counts = {"success": self._success, "uses": self._uses, "rows": self._rows, "round": self._round}
        return copy.deepcopy({"library": self.library.state_dict(), **counts})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        state = copy.deepcopy(state)
        self.library.load_state_dict(state["library"])
        self._success, self._uses = state["success"], state["uses"]
        self._rows, self._round = state["rows"], state["round"]


class MacroEpisodic(EpisodicRollout):
    """As `EpisodicRollout`, with the programs that the policy has."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        policy: Any = ctx.policy
        sim = find_macro_sim(ctx).with_programs(policy.read_programs())
        return super().collect(prompts, exchange_sim(ctx, sim))


def record_states(sim: Any, ctx: Context, count: int) -> list[Mapping[str, Any]]:
    """Named states of `count` initial states of the task, and of as many after 30 random primitive actions."""
    rng, task = derive_rng("macro trials", ctx.seed), ctx.task
    env = sim.with_programs(()).make(count)
    try:
        env.reset(seed=[task[index % len(task)].info["seed"] for index in range(count)])
        states = env.named_states()
        for _ in range(30):
            env.step(rng.integers(len(sim.action_names), size=count))
        return [*states, *env.named_states()]
    finally:
        env.close()
