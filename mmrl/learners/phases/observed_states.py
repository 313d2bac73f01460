"""Forward pass of a world model on sequences of a replay buffer."""

from __future__ import annotations

from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.ops.world_model.latent_kl import balanced_kl

register_columns(
    {
        "belief": Column("[N, ...]", "1", "world model: deterministic part of the state, of a sequence or a start"),
        "latent": Column("[N, ...]", "1", "world model: state drawn from the posterior, of a sequence or a start"),
        "information": Column("[N, T]", "nats", "world model: KL(posterior || prior) of each observation"),
    }
)


class ObservedStates(Output):
    """States of a world model given the observations of sequences [N, T], and what is predicted from them.

    extra: "belief" [N, T, D], "latent" [N, T, S], "information" [N, T] = KL(posterior || prior), "reward_prediction"
    [N, T], and, where there are such models, "continuation_logits" [N, T] and "reconstruction_error" [N, T], half the
    sum of squared errors of the observation.

    Args:
        policy: name of the policy, which has the encoder and the recurrent state-space model.
        reward: name of the reward model.
        continuation: name of the model of whether the episode goes on; None without one.
        decoder: name of the decoder; None without one.
        balance: share of the gradient of the KL divergence that trains the prior; None for its plain gradient.
    """

    def __init__(
        self,
        policy: str = "policy",
        reward: str = "reward",
        continuation: str | None = None,
        decoder: str | None = "decoder",
        balance: float | None = None,
    ):
        self.policy, self.reward, self.continuation, self.decoder = policy, reward, continuation, decoder
        self.balance = balance

    def gives(self) -> frozenset[str]:
        heads = {"continuation_logits": self.continuation, "reconstruction_error": self.decoder}
        always = {"belief", "latent", "information", "reward_prediction"}
        return frozenset(always | {name for name, model in heads.items() if model is not None})

    def models(self) -> frozenset[str]:
        optional = {name for name in (self.continuation, self.decoder) if name is not None}
        return frozenset({self.policy, self.reward} | optional)

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        policy, shape = ctx.models[self.policy], batch["action_mask"].shape
        observation = {name: column.flatten(0, 1) for name, column in batch.observation().items()}
        embedding = policy.encoder(observation).unflatten(0, shape)  # [N, T, E]
        noise = ctx.normal(*shape, policy.rssm.state_size)
        action = policy.to_action(batch["previous_action"])
        sequence = policy.rssm.observe(embedding, action, noise, batch["observed"])
        features = sequence.features.flatten(0, 1)  # [N T, D + S]
        extra = {
            "belief": sequence.belief,
            "latent": sequence.state,
            "information": balanced_kl(sequence.posterior, sequence.prior, self.balance),
            "reward_prediction": ctx.models[self.reward](features).view(shape),
        }
        if self.continuation is not None:
            extra["continuation_logits"] = ctx.models[self.continuation](features).view(shape)
        if self.decoder is not None:
            extra["reconstruction_error"] = ctx.models[self.decoder].error(features, observation).view(shape)
        nothing = extra["information"].new_zeros(shape)
        return PolicyOutput(nothing, nothing, extra=extra)
