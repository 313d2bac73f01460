"""ACT for cloning, and as a Gaussian policy for RL; it loads and saves LeRobot's folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput
from mmrl.policies.base import require_inputs
from mmrl.policies.processor import Processor
from mmrl.policies.vla.act.model import ACT
from mmrl.policies.vla.act.settings import ACTSettings
from mmrl.policies.vla.action_padding import ActionPadding
from mmrl.policies.vla.chain import ChainPolicy, EncodedContext, select_prefix
from mmrl.policies.vla.chains import Chain
from mmrl.policies.vla.chains.base import Prefix
from mmrl.policies.vla.lerobot.features import Features
from mmrl.policies.vla.lerobot.policy import LeRobotPolicy
from mmrl.policies.vla.value import StateValue


class ACTPolicy(LeRobotPolicy, ChainPolicy):
    """ACT: a transformer predicts the chunk from images, the state and, in cloning, a latent of the demonstration.

    ACT returns one chunk and has no log-probability of its own. Here it is the mean of a Gaussian (chain GaussianChunk)
    whose standard deviation is a head beside the checkpoint, so that RL has one; decode "mean" is ACT.

    Source: Zhao et al., "Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware", 2023, arXiv:2304.13705;
    weights, config.json and processors as lerobot 0.4 and 0.6 save them. Differs: no dropout.

    Args:
        chain: GaussianChunk.
        path: folder or hub id of a checkpoint; None for a new policy with random weights.
        settings: entries of config.json of a new policy that differ from lerobot's defaults; chunk_size is `chunk`
            unless it is given.
        action_dims: A, numbers per control step.
        chunk: H, control steps per decision, at most the checkpoint's chunk_size.
        proprio_dims: length of the proprioception vector.
        cameras: observations that are images, in the order in which the network reads them.
        image_size: height and width of the images of a new policy, or one number for both.
        freeze_vision: the ResNet stays fixed.
        value_head: predict the return of the state, per row, from the mean of its tokens.
        critic: whether that gradient trains the tokens too ("shared") or not ("detached").
        processor: between the simulator or dataset and the network; None for what the checkpoint says.
    """

    optional = ("value_head", "log_std")
    settings_class = ACTSettings

    def __init__(
        self,
        chain: Chain,
        path: str | None = None,
        settings: Mapping[str, Any] | None = None,
        action_dims: int = 3,
        chunk: int = 8,
        proprio_dims: int = 13,
        cameras: Sequence[str] = ("image",),
        image_size: int | Sequence[int] = 64,
        freeze_vision: bool = False,
        value_head: bool = False,
        critic: Literal["shared", "detached"] = "detached",
        processor: Processor | None = None,
    ):
        super().__init__()
        if chain.prediction_type != "mean":
            raise ValueError(
                f"policy.chain {type(chain).__name__} needs a network that predicts the {chain.prediction_type}, but "
                "ACT predicts the chunk: take GaussianChunk"
            )
        self.chain, self.critic = chain, critic
        features = Features.of(cameras, image_size, proprio_dims, action_dims)
        self._configure(path, {"chunk_size": chunk, **(settings or {})}, features, cameras, chunk, processor)
        # actions of simulators and scaled ranges are bounded by 1, actions scaled by mean and std are not
        self.bound = None if self.processor.action.kind == "mean_std" else 1.0
        size, width = self.settings.chunk_size, self.settings.dim_model
        if not 1 <= chunk <= size:
            raise ValueError(f"policy.chunk={chunk}, but the checkpoint's chunk_size is {size}")
        padding = ActionPadding(chunk, action_dims, size, action_dims)
        self.action_padding = padding if padding.entries_per_step else None
        self.model = ACT(self.settings)
        self.value_head = StateValue(width, min(width, 512)) if value_head else None
        self.log_std = nn.Linear(width, action_dims) if chain.predicts_std else None
        if self.log_std is not None:  # the initial std is the chain's
            nn.init.zeros_(self.log_std.weight)
            nn.init.zeros_(self.log_std.bias)
        self._load()
        if freeze_vision:
            self.model.backbone.requires_grad_(False)

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | {"latent_kl"}

    def encode_context(self, observation: Mapping[str, Any]) -> EncodedContext:
        require_inputs(observation, ("images", "proprio"), self)
        pixels = self.pixels(observation["images"])[:, 0]
        tokens = self.model.read(pixels, observation["proprio"][:, 0])
        if self.value_head is None:
            return EncodedContext((tokens,))
        critic_input = tokens if self.critic == "shared" else tokens.detach()
        return EncodedContext((tokens,), self.value_head(critic_input.mean(dim=1)))

    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        features = self.model.decode(prefix[0])
        log_std = None if self.log_std is None else self.log_std(features).float()
        return self.model.action_head(features).float(), log_std

    def forward(self, batch: Batch) -> PolicyOutput:
        """Score stored chunks as `ChainPolicy` does.

        extra, when the batch has demonstrations: denoising_error [N, T, A, 1], prediction - chunk with the latent of
        the demonstration; latent_kl [N], KL(q(z given state and chunk) || N(0, 1)) in nats. Both are 0 elsewhere.
        """
        batch.require({"action", "action_mask", "temperature"}, type(self).__name__)
        encoded = self.encode_context(batch.observation())
        logprobs, entropy = self._score(encoded.prefix, batch)
        extra = self._imitate(encoded.prefix, batch) if "is_demo" in batch and batch["is_demo"].any() else {}
        return PolicyOutput(logprobs, entropy, encoded.values, extra)

    def _imitate(self, prefix: Prefix, batch: Batch) -> dict[str, Tensor]:
        """Compute error and KL of demonstrated chunks; the latent's noise depends only on `row_seed`."""
        batch.require({"row_seed"}, f"{type(self).__name__}, to learn from demonstrations,")
        rows = batch["is_demo"].nonzero()[:, 0]
        chunk = batch["action"][rows, : self.chunk].float()
        whole = chunk if self.action_padding is None else self.action_padding.pad_last(chunk)
        latent, kl = None, torch.zeros(batch.rows, device=chunk.device)
        if self.settings.use_vae:
            after = torch.arange(whole.shape[1], device=chunk.device) >= self.chunk
            padded = after.repeat(len(rows), 1)
            padded[:, : self.chunk] = ~batch["action_mask"][rows, : self.chunk]
            mean, log_variance = self.model.posterior(batch.observation()["proprio"][rows, 0], whole, padded)
            noise = Noise(batch["row_seed"][rows].cpu().numpy()).normal(self.settings.latent_dim).to(mean.device)
            latent = mean + (log_variance / 2).exp() * noise
            kl = kl.index_put((rows,), latent_kl(mean, log_variance))
        (tokens,) = select_prefix(prefix, rows)
        error = self._core(self.model.action_head(self.model.decode(tokens, latent)).float() - whole)
        out = torch.zeros((*batch["action"].shape, 1), device=error.device)
        steps = torch.arange(self.chunk, device=rows.device)
        return {"denoising_error": out.index_put((rows[:, None], steps[None]), error[..., None]), "latent_kl": kl}


def latent_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, exp(log_variance)) || N(0, 1)) [N] in nats, summed over the latent's dimensions [N, Z].

    Source: Kingma and Welling, "Auto-Encoding Variational Bayes", 2014, appendix B, arXiv:1312.6114.
    """
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=-1).float()
