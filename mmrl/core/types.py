"""Types that tasks, rollouts, engines and rewards exchange, one by one; `mmrl.data.collate` makes batches of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mmrl.core.lazy_module import torch
from mmrl.core.messages import AssistantMessage as AssistantMessage
from mmrl.core.messages import Video as Video
from mmrl.core.messages import assistant_message as assistant_message
from mmrl.core.sampling import Sampling as Sampling

if TYPE_CHECKING:  # gymnasium is only needed by those who have a simulator
    from gymnasium.vector import VectorEnv
    from torch import Tensor

    from mmrl.engines.base import Engine
    from mmrl.policies.base import Policy

Observation = dict[str, Any]
"""Network input of one row: tensors without a batch axis (or per-row ragged ones), keyed by input name."""

Ended = Literal["done", "length", "time", "cut", "error"]
"""Why an episode stopped: by itself, at the token limit, at the time limit, at a segment's end, or by a failure."""


@dataclass(frozen=True)
class Prompt:
    """One problem: the input of the policy, and what the verifier needs to judge the answer."""

    key: str  # "task/split/index", for example "arithmetic/train/17"
    messages: tuple[dict[str, Any], ...] = ()  # chat messages; an image is a content part {"type": "image"}
    images: tuple[np.ndarray, ...] = ()  # uint8 [H, W, C], in the order of the image parts
    answer: Any = None
    info: dict[str, Any] = field(default_factory=dict)  # further columns of the row, for verifiers and rewards
    place: str = ""  # file and row, for messages
    tools: tuple[dict[str, Any], ...] = ()  # schemas that the chat template shows, of tools that the row brings
    videos: tuple[Video, ...] = ()  # in the order of the content parts {"type": "video"}

    @property
    def index(self) -> int:
        """Position in the task: the last part of the key."""
        return int(self.key.rsplit("/", 1)[1])

    @property
    def observation(self) -> dict[str, Any]:
        """The raw observation of a text or VLM prompt, as `Policy.encode` takes it."""
        fields = {"messages": self.messages, "images": self.images, "videos": self.videos, "tools": list(self.tools)}
        return {name: value for name, value in fields.items() if value or name in ("messages", "images")}


@dataclass
class Request:
    """One context for which an engine shall return one completion."""

    observation: Mapping[str, Any]  # raw: messages and images, or what a simulator returns
    seed: int  # 64-bit; the draw depends on this number only, not on the batch around it
    prefix: Tensor | None = None  # [P] ids that stand after the observation already; the completion goes on from there
    prompt_id: Hashable | None = None  # the same for requests of one observation, which is encoded once; None: its own
    model: str | None = None  # the frozen model that answers, by its name in model.frozen_models; None: the policy


@dataclass
class Completion:
    """Result of an engine for one request."""

    observation: Observation  # encoded: what Policy.forward needs to score the action again
    action: Tensor  # [T] ids, or [T, A] reals
    behavior_logprobs: Tensor  # [T] nats, of the distribution that was sampled from
    action_mask: Tensor  # [T] bool, True where the policy chose
    output: Any  # the action decoded: a string, or a float array for a simulator
    ended: Ended = "done"
    value: Tensor | None = None  # scalar or [T]
    extra: dict[str, Tensor] = field(default_factory=dict)  # further row columns, named as in mmrl.core.columns
    policy_version: int = 0  # of the weights that sampled it
    others: dict[str, Observation] = field(default_factory=dict)  # encoded contexts in which it is scored as well
    prompt_id: Hashable | None = None  # the same for completions of one observation in an iteration; None: its own
    model: str | None = None  # the frozen model that sampled it; None: the policy


@dataclass
class Turn:
    """One row: a context and the T choices sampled in it. A forced token is a choice whose action_mask is False."""

    completion: Completion
    reward: float = 0.0  # from the environment, for this decision

    def with_columns(self, **columns: Tensor) -> Turn:
        """Return the turn with further row columns, named as in mmrl.core.columns."""
        return replace(self, completion=replace(self.completion, extra={**self.completion.extra, **columns}))


FIRST_ADDED_GROUP = 2**31
"""Group of the first episode that a transform adds to those of a rollout, which are numbered below it."""


@dataclass
class Episode:
    """One episode of a prompt: its turns, its scores and reward, and why it ended."""

    prompt: Prompt
    group: int  # shared by the episodes of one prompt; unique in an iteration over all ranks
    sample_index: int  # among the episodes of its group
    turns: Sequence[Turn] = field(default_factory=list)  # a list, or the rows of a table: `mmrl.core.transitions`
    scores: dict[str, float] = field(default_factory=dict)  # named by the task's verifiers
    reward: float = 0.0  # composed from the scores by a Reward; given at the last turn
    ended: Ended = "done"
    bootstrap_value: float = 0.0  # value of the state after the last turn where that is not terminal
    following: Observation | None = None  # encoded observation after the last turn of a segment that did not terminate
    source: Literal["policy", "demo", "replay"] = "policy"
    role: str = "actor"
    info: dict[str, Any] = field(default_factory=dict)  # what the simulator or the tools reported

    @property
    def output(self) -> Any:
        """The last decoded action: the answer of a text episode."""
        return self.turns[-1].completion.output if self.turns else None

    @property
    def tokens(self) -> int:
        """Number of choices that the policy made."""
        counted = getattr(self.turns, "choices", None)  # known to columns without making a turn of every row
        return int(sum(turn.completion.action_mask.sum() for turn in self.turns)) if counted is None else counted

    @property
    def env_reward(self) -> float:
        """Sum of the environment's rewards over all turns."""
        total = getattr(self.turns, "env_reward", None)
        return float(sum(turn.reward for turn in self.turns)) if total is None else total

    def light(self) -> Episode:
        """A copy without tensors and images, cheap to send between processes and to log; a text's answer stays."""
        answer = {"answer": self.output} if isinstance(self.output, str) and "answer" not in self.info else {}
        info = {**self.info, **answer, "tokens": self.tokens}
        return replace(self, turns=[], following=None, prompt=replace(self.prompt, images=(), videos=()), info=info)


@dataclass
class PolicyOutput:
    """Output of one forward pass on stored actions."""

    logprobs: Tensor  # [N, T] nats
    entropy: Tensor  # [N, T] nats
    values: Tensor | None = None  # [N] per row, or [N, T] per choice
    extra: dict[str, Tensor] = field(default_factory=dict)
    others: dict[str, PolicyOutput] = field(default_factory=dict)  # of further passes: other contexts, other models

    @property
    def full_logprobs(self) -> Tensor:
        """Log-probs [N, T] in nats over everything that can be chosen, which imitation losses raise.

        `logprobs` are renormalised over what truncated sampling kept, where it drew the choice.
        """
        return self.extra.get("full_logprobs", self.logprobs)

    def other(self, name: str, part: str) -> PolicyOutput:
        """The output of a further pass; names the part that asks when there was none."""
        if name not in self.others:
            raise KeyError(f"{part}: no pass {name!r} was made over these rows; there are {sorted(self.others)}")
        return self.others[name]


class Collector:
    """Services of the training loop for the parts of an iteration: collect, score and gather."""

    def collect_prompts(self, count: int) -> list[Episode]:
        """Collect `count` further prompts; this rank's scored share. Collective: all ranks ask for the same number."""
        raise RuntimeError("only the training loop collects further prompts; leave this part out of data.evaluation")

    def collect_samples(self, indices: Mapping[int, range]) -> list[Episode]:
        """Collect and score further episodes of this rank's prompts, by slot and sample index."""
        raise RuntimeError("only the training loop samples further episodes; leave this part out of data.evaluation")

    def score(self, episodes: Sequence[Episode]) -> None:
        """Write scores and rewards into episodes of whole groups, also provisional ones that a rollout makes."""
        raise RuntimeError("there is no reward function here; give the Context a collector that scores")

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """The items of all ranks, in rank order. Collective."""
        return list(items)


@dataclass(frozen=True)
class Context:
    """Context of one iteration: read-only facts, and the `collector` service. `dataclasses.replace` derives another."""

    task: Task
    engine: Engine
    policy: Policy
    sampling: Sampling
    seed: int
    iteration: int
    purpose: str = "train"  # keys the random streams: "train", "eval", ...
    group_size: int = 1  # G, episodes per prompt
    num_prompts: int = 0  # of an iteration over all processes, before further ones; 0 where not known
    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    models: Mapping[str, Policy] = field(default_factory=dict)  # frozen or auxiliary models, for example "reference"
    collector: Collector = field(default_factory=Collector)
    progress: Callable[[str, int, int], None] = lambda phase, done, total: None
    requested_indices: Mapping[int, range] | None = None  # sample indices by slot; None for the first `group_size`
    scheduled: Mapping[str, float] = field(default_factory=dict)  # values of scheduled scalars, by their keys

    def sample_indices(self, slot: int) -> range:
        """Sample indices of the episodes that a rollout has to collect for the prompt of this slot."""
        return range(self.group_size) if self.requested_indices is None else self.requested_indices[slot]


class Task(ABC):
    """A set of problems with a verifier. Splits are disjoint by construction."""

    name: str
    split: str

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Prompt: ...

    @abstractmethod
    def score(self, episode: Episode) -> dict[str, float]:
        """Return the named scores of a finished episode. A wrong answer gets a score; only a bug raises."""

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """The scores of many episodes; a task that asks a server overrides it, to ask once."""
        out = []
        for episode in episodes:
            try:
                out.append(self.score(episode))
            except Exception as error:
                error.add_note(f"while scoring {episode.prompt.key!r} of task {self.name!r}, output {episode.output!r}")
                raise
        return out

    @abstractmethod
    def on(self, split: str) -> Task:
        """The same task on another split: "train" or "held_out"."""

    def demonstrate(self, index: int) -> str:
        """The answer that an expert would give, as text. Only for tasks that can be imitated."""
        raise NotImplementedError(f"task {self.name!r} has no demonstrations; it cannot be imitated")

    def script(self, index: int) -> list[str]:
        """What that expert writes turn by turn where tools are called in between; the last one is the answer."""
        return [self.demonstrate(index)]

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        """Draw an answer without reading the problem, the floor of the scores: the expert's to any training problem."""
        train = self.on("train")
        return train.demonstrate(int(rng.integers(len(train))))

    def drop_long_prompts(self, fits: Callable[[Prompt, int], bool]) -> Task:
        """The task without prompts that are longer than its own limit; fits(prompt, tokens) counts with the policy."""
        return self

    def prompts_to_check(self) -> Iterator[Prompt]:
        """Prompts to hold against the policy's context: all that a user wrote, with blank images, or 64 generated."""
        return (self[index] for index in range(0, len(self), max(1, len(self) // 64)))

    def demonstrations(self, prompts: Sequence[Prompt]) -> list[list[tuple[Mapping[str, Any], Any]]]:
        """For each prompt the expert's decisions: raw observation and output, in order."""
        return [[(prompt.observation, self.demonstrate(prompt.index))] for prompt in prompts]

    def contract(self) -> dict[str, Any]:
        """Contract of the task: plain values that must be equal where its checkpoints and results are used."""
        return {}


class Sim(ABC):
    """A simulator: makes vector environments and describes how they are used."""

    name: str

    @abstractmethod
    def make(self, num_envs: int) -> VectorEnv: ...

    def sizes(self) -> dict[str, Any]:
        """Constructor arguments of a policy that this simulator decides, such as action_dims; configs read them."""
        return {}

    def contract(self) -> dict[str, Any]:
        """Contract of the simulator: plain values that must be equal where its data and checkpoints are used."""
        return {"sim": self.name}

    def stepwise(self) -> Sim:
        """The same simulator with one control step per decision, as recordings need it; time limits stay."""
        return self

    def task_of(self, seed: int) -> str:
        """The name of the task that an initial state poses; a simulator of several tasks tells it from the seed."""
        return self.name
