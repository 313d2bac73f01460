"""Vision-language-action policy with a continuous head, whose chunks are sampled by a chain of transitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mmrl.policies.vla.chain import ChainPolicy, EncodedContext
from mmrl.policies.vla.chains import Chain
from mmrl.policies.vla.chains.base import Prefix, check_teacher
from mmrl.policies.vla.small.base import ActionPolicy
from mmrl.policies.vla.small.expert import ActionExpert
from mmrl.policies.vla.small.networks import ContextTransformer


class ActionFlowPolicy(ChainPolicy, ActionPolicy):
    """VLA policy that samples a chunk of H x A actions from noise in K transitions, given image, instruction and state.

    A small encoder and transformer encode the context, an expert predicts at every transition; see ChainPolicy for what
    the choices are.

    Args:
        chain: the kind of chain.
        teacher: sampler of a frozen copy whose chunks are the distillation targets; None for `chain`.
        expert_layers: depth of the expert.
        timesteps_per_sample: denoising timesteps drawn for each demonstrated row, in one pass.
        freeze_context: freeze the transformer that reads the context too, and train the expert alone.
        gradient_checkpointing: compute the expert's activations again in the backward pass instead of storing them.
    """

    optional = ("value_head", "expert.log_std")
    capturable = "contexts"

    def __init__(
        self,
        chain: Chain,
        teacher: Chain | None = None,
        expert_layers: int = 2,
        timesteps_per_sample: int = 8,
        freeze_context: bool = False,
        gradient_checkpointing: bool = False,
        **kwargs: Any,
    ):
        head = {"expert_layers": expert_layers, "prediction_type": chain.prediction_type}
        super().__init__(head=head, **kwargs)
        architecture = self.architecture
        if architecture["prediction_type"] != chain.prediction_type:
            raise ValueError(
                f"policy.path={self.path}: its network predicts the {architecture['prediction_type']}, but "
                f"policy.chain {type(chain).__name__} needs one that predicts the {chain.prediction_type}"
            )
        check_teacher(chain, teacher)
        self.chain, self.teacher, self.timesteps_per_sample = chain, teacher, timesteps_per_sample
        self._build()
        self.expert.gradient_checkpointing = gradient_checkpointing
        self._ready()
        if freeze_context:
            self.transformer.requires_grad_(False)

    def _build(self) -> None:
        architecture = self.architecture
        shared = {name: architecture[name] for name in ("hidden_size", "heads", "intermediate_size")}
        self.transformer = ContextTransformer(
            vocabulary=len(self.tokenizer), layers=architecture["layers"], proprio_dims=self.proprio_dims, **shared
        )
        sizes: Any = {"action_dims": self.action_dims, "chunk": self.chunk}
        kinds: Any = {"predicts_std": self.chain.predicts_std, "reads_end_time": self.chain.reads_end_time}
        self.expert = ActionExpert(layers=architecture["expert_layers"], **kinds, **sizes, **shared)

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | {"map_logits"}

    def encode_context(self, observation: Mapping[str, Any], complete: bool | None = None) -> EncodedContext:
        """Encode N collated contexts; `complete` says whether all instructions are equally long, if that is known."""
        complete = self.is_complete(observation) if complete is None else complete
        visual, maps = self._look(observation)
        prefix, values = self._context(visual, observation, complete)
        return EncodedContext(
            prefix,
            values,
            cached_features={"visual": visual} if self.freeze_vision else {},
            extra={} if maps is None else {"map_logits": maps},
        )

    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        return self.expert(prefix, x, time, end_time)

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Return the chunk [H, A]: a chain without transitions."""
        return self._encode_chunk(output)

    def _context(self, visual: Tensor, observation: Mapping[str, Any], complete: bool) -> tuple[Prefix, Tensor | None]:
        """Compute the expert's keys and values of every context, and values [N]."""
        present = None if complete else self._present(observation)
        hidden, mask = self.transformer.read(visual, observation["instruction"], present, observation["proprio"])
        prefix = self.expert.prefix(hidden, mask)
        return prefix, self._values(hidden[:, -1], visual, observation)
