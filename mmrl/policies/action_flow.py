"""A vision-language-action policy with a continuous head: its chunk of actions is the end of a chain of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from mmrl.batch import Batch
from mmrl.ops.gaussian import normal_entropy, normal_logprob
from mmrl.policies.action_base import ActionPolicy
from mmrl.policies.action_expert import ActionExpert, Prefix, taken
from mmrl.policies.action_transformer import ContextTransformer
from mmrl.policies.action_value import StateValue, seen_said_felt
from mmrl.policies.base import Action, need
from mmrl.policies.chains import Chain, Step
from mmrl.policies.instruction_tokenizer import WORDS
from mmrl.policies.processor import Processor
from mmrl.rng import Noise
from mmrl.types import PolicyOutput, Sampling


class ActionFlowPolicy(ActionPolicy):
    """Image, instruction and proprioception in; noise becomes a chunk of H x A actions in K transitions.

    A choice is control step h of chain state x_i, so that T counts (K + 1) x H choices [A], block after block: x_0,
    x_1, ..., x_K. x_0 is given, and so is what a transition that was not drawn led to: their mask is False. Control
    steps that were never played are masked in every block. A log-probability is the sum over the A dimensions, in
    nats; how choices join to one ratio is the objective's matter. A demonstration is a chain of no transition: one
    block, the chunk. Where the chain has no noise to start from, x_0 is left out.

    The context is read once per decision, the expert runs once per transition; learning runs it at the transitions
    that were drawn and nowhere else. `sampling.decode` "mean" and "argmax" draw no transition. The temperature
    multiplies every standard deviation.
    Source: Black et al., "pi0", 2024, arXiv:2410.24164; Chen et al., "pi_RL", 2025, section 4, arXiv:2510.25889.

    Args:
        chain: the kind of chain.
        vision: timm model that supports features_only.
        vision_args: further arguments of timm.create_model; None gives the small encoder `SMALL_CONVNEXT`.
        visual_tokens: tokens that the image becomes.
        hidden_size: width of transformer and expert.
        layers: depth of the transformer that reads the context.
        expert_layers: depth of the expert.
        heads: attention heads.
        intermediate_size: width of the MLPs.
        action_dims: A, numbers per control step.
        chunk: H, control steps per decision.
        proprio_dims: length of the proprioception vector.
        words: that are one token each; others are spelt.
        lessons: training places between noise and chunk per demonstrated row, in one pass.
        freeze_vision: the encoder, its pooling and the word embeddings stay fixed; visual tokens are then kept with
            the sampled rows instead of images, and learning does not run the encoder again.
        freeze_context: the transformer that reads the context stays fixed too; the expert learns.
        gradient_checkpointing: the expert's blocks are run again in the backward pass instead of being kept.
        value_head: predict the return of the state, per row.
        critic: what the value reads: the context as the policy read it ("shared", its gradient trains the
            transformer), the same without that gradient ("detached"), or the inputs through layers of its own ("own").
        processor: between the simulator or dataset and the network; None for the saved one, or for no change.
        path: folder written by save_pretrained; its architecture and words replace those given here.
    """

    def __init__(
        self,
        chain: Chain,
        vision: str = "convnext_atto",
        vision_args: dict[str, Any] | None = None,
        visual_tokens: int = 8,
        hidden_size: int = 128,
        layers: int = 2,
        expert_layers: int = 2,
        heads: int = 4,
        intermediate_size: int = 256,
        action_dims: int = 3,
        chunk: int = 5,
        proprio_dims: int = 13,
        words: Sequence[str] = WORDS,
        lessons: int = 8,
        freeze_vision: bool = False,
        freeze_context: bool = False,
        gradient_checkpointing: bool = False,
        value_head: bool = False,
        critic: Literal["shared", "detached", "own"] = "shared",
        processor: Processor | None = None,
        path: str | None = None,
    ):
        given = dict(
            vision=vision,
            vision_args=vision_args,
            visual_tokens=visual_tokens,
            hidden_size=hidden_size,
            layers=layers,
            expert_layers=expert_layers,
            heads=heads,
            intermediate_size=intermediate_size,
            action_dims=action_dims,
            chunk=chunk,
            proprio_dims=proprio_dims,
            answer=chain.answer,
        )
        super().__init__(given, words, freeze_vision, processor, path)
        own = self.architecture
        if own["answer"] != chain.answer:
            raise ValueError(
                f"policy.path={path}: its network answers the {own['answer']}, but policy.chain "
                f"{type(chain).__name__} needs one that answers the {chain.answer}"
            )
        self.chain, self.critic, self.lessons = chain, critic, lessons
        shared = {name: own[name] for name in ("hidden_size", "heads", "intermediate_size")}
        self.body = ContextTransformer(
            vocabulary=len(self.tokenizer), layers=own["layers"], proprio_dims=self.proprio_dims, **shared
        )
        self.expert = ActionExpert(
            layers=own["expert_layers"],
            action_dims=self.action_dims,
            chunk=self.chunk,
            spread=chain.spread,
            **shared,
        )
        self.expert.checkpointed = gradient_checkpointing
        width = own["hidden_size"]
        features = width if critic != "own" else (own["visual_tokens"] + 1) * width + self.proprio_dims
        self.value_head = StateValue(features, width) if value_head else None
        self._ready()
        if freeze_context:
            self.body.requires_grad_(False)

    optional = ("value_head", "expert.spread")

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values"} if init_args.get("value_head") else ())

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"answer_error", "map_logits"}) | cls.provides(init_args)

    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        owner = torch.arange(len(noise), device=self.device)
        return self.attempts(observation, owner, sampling, noise)

    @torch.no_grad()
    def attempts(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        """Play the chain from every row's own noise; contexts are read once."""
        if sampling.truncated:
            raise ValueError(
                "a continuous action head cannot drop unlikely choices: leave sampling.top_k, top_p and min_p as they "
                "are and lower sampling.temperature"
            )
        visual, _ = self._look(observation)
        prefix, values = self._read(visual, observation)
        prefix, device, count = taken(prefix, owner), prefix[0].device, len(noise)
        shape = (self.chunk, self.action_dims)
        x = noise.normal(*shape).to(device) if self.chain.start else torch.zeros(count, *shape, device=device)
        drawn = self.chain.opened(noise) & (sampling.decode == "sample")
        fresh = noise.normal(self.chain.draws, *shape).to(device)  # asked for whatever is drawn: streams stay aligned
        states, logprobs = ([x], [x.new_zeros(count, self.chunk)]) if self.chain.start else ([], [])
        for i in range(self.chain.steps):
            index = torch.full((count,), i, device=device)
            step = self._step(prefix, x, index, drawn[:, i].to(device), sampling.temperature)
            x = step.mean + step.deviation * fresh[:, min(i, self.chain.draws - 1)]
            states.append(x)
            logprobs.append(normal_logprob(x, step.mean, step.deviation).sum(dim=-1))
        mask = torch.cat([drawn.new_zeros(count, 1), drawn], dim=1) if self.chain.start else drawn
        return Action(
            action=torch.cat(states, dim=1),
            logprobs=torch.cat(logprobs, dim=1),
            mask=mask.to(device).repeat_interleave(self.chunk, dim=1),
            output=list(self.processor.decode(x.clamp(-1, 1).cpu().numpy())),
            values=None if values is None else values[owner],
            memo={"visual": visual[owner]} if self.freeze_vision else {},
        )

    def forward(self, batch: Batch) -> PolicyOutput:
        """Score the drawn transitions of the stored chains [N, T, A]; what was not drawn gets 0.

        extra: answer_error [N, T, A, L] of the network at L training places of every demonstrated chunk (0 elsewhere),
        when the batch has demonstrations; map_logits when the rows have images.
        """
        batch.require({"action", "mask", "temperature"}, type(self).__name__)
        observation = batch.observation()
        visual, maps = self._look(observation)
        prefix, values = self._read(visual, observation)
        logprobs, entropy = self._score(prefix, batch)
        extra = {} if maps is None else {"map_logits": maps}
        if "is_demo" in batch and batch["is_demo"].any():
            extra["answer_error"] = self._lesson_error(prefix, batch)
        return PolicyOutput(logprobs, entropy, values, extra)

    def imitate(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """The chunk [H, A] itself, the end of a chain of no transition."""
        return self._demonstrated(output)

    def _step(self, prefix: Prefix, x: Tensor, index: Tensor, drawn: Tensor, temperature: Tensor | float) -> Step:
        """The transition from x; the one place where network and chain meet, in sampling and in learning."""
        answer, spread = self.expert(prefix, x, self.chain.time(index))
        mean, deviation = self.chain.step(x, index, answer, spread, drawn)
        return Step(mean, deviation * temperature)

    def _score(self, prefix: Prefix, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies [N, T] of the drawn transitions, one pass of the expert for all of them."""
        chain = batch["action"].unflatten(1, (-1, self.chunk))
        drawn = batch["mask"].unflatten(1, (-1, self.chunk)).any(dim=2)  # [N, blocks]
        if self.chain.start:
            drawn = drawn & (torch.arange(drawn.shape[1], device=drawn.device) > 0)
        rows, block = drawn.nonzero(as_tuple=True)
        logprobs = torch.zeros(chain.shape[:3], device=chain.device)
        if not len(rows):  # an unused pass keeps every parameter in the graph
            first = torch.zeros(1, dtype=torch.long, device=chain.device)
            idle = self._step(taken(prefix, first), chain[first, 0], first, first > 0, 1.0).mean.sum()
            return (logprobs + 0 * idle).flatten(1), logprobs.flatten(1)
        before = chain[rows, block - 1] if self.chain.start else torch.zeros_like(chain[rows, block])
        index = block - 1 if self.chain.start else block
        every = torch.ones_like(rows, dtype=torch.bool)
        step = self._step(taken(prefix, rows), before, index, every, batch["temperature"][rows, None, None])
        found = normal_logprob(chain[rows, block], step.mean, step.deviation).sum(dim=-1)
        openness = normal_entropy(step.deviation).sum(dim=-1)
        return (
            logprobs.index_put((rows, block), found).flatten(1),
            logprobs.index_put((rows, block), openness).flatten(1),
        )

    def _lesson_error(self, prefix: Prefix, batch: Batch) -> Tensor:
        """answer - target [N, T, A, L] at training places; a row's places depend on its `seed` alone."""
        batch.require({"seed"}, f"{type(self).__name__}, to learn from demonstrations,")
        rows = batch["is_demo"].nonzero()[:, 0]
        noise = Noise(batch["seed"][rows].cpu().numpy())
        chunk = batch["action"][rows, : self.chunk].float()
        there = taken(prefix, rows)
        shape = (len(batch["action"]), batch["action"].shape[1], self.action_dims, self.lessons)
        lessons = [self.chain.lesson(chunk, noise) for _ in range(self.lessons)]
        x, time, target = (torch.cat(parts) for parts in zip(*lessons))
        many = taken(there, torch.arange(len(rows), device=rows.device).repeat(self.lessons))
        error = self.expert(many, x, time)[0] - target
        error = error.unflatten(0, (self.lessons, -1)).permute(1, 2, 3, 0)  # [D, H, A, L]
        out = torch.zeros(shape, device=error.device)
        steps = torch.arange(self.chunk, device=rows.device)
        return out.index_put((rows[:, None], steps[None]), error)

    def _read(self, visual: Tensor, observation: Mapping[str, Any]) -> tuple[Prefix, Tensor | None]:
        """What the expert needs to know of every context, and values [N]."""
        need(observation, ("instruction", "proprio"), self)
        present, ids, proprio = self._present(observation), observation["instruction"], observation["proprio"]
        hidden, there = self.body.read(visual, ids, present, proprio)
        prefix = self.expert.prefix(hidden, there)
        if self.value_head is None:
            return prefix, None
        if self.critic == "own":
            return prefix, self.value_head(
                seen_said_felt(visual.detach(), self.body.words(ids).detach(), present, proprio)
            )
        summary = hidden[:, -1]
        return prefix, self.value_head(summary if self.critic == "shared" else summary.detach())
