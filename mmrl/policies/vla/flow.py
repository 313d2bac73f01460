"""Vision-language-action policy with a continuous head, whose chunks are sampled by a chain of transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from mmrl.policies.processor import Processor
from mmrl.policies.vla.base import ActionPolicy, Reads
from mmrl.policies.vla.chain import ChainPolicy, EncodedContext, Prefix
from mmrl.policies.vla.chains import Chain
from mmrl.policies.vla.chains.base import check_teacher
from mmrl.policies.vla.expert import ActionExpert
from mmrl.policies.vla.instruction_tokenizer import WORDS
from mmrl.policies.vla.transformer import ContextTransformer


class ActionFlowPolicy(ChainPolicy, ActionPolicy):
    """VLA policy that samples a chunk of H x A actions from noise in K transitions, given image, instruction and state.

    A small encoder and transformer encode the context, an expert predicts at every transition; see ChainPolicy for what
    the choices are.

    Args:
        chain: the kind of chain.
        teacher: sampler of a frozen copy whose chunks are the distillation targets; None for `chain`.
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
        timesteps_per_sample: denoising timesteps drawn for each demonstrated row, in one pass.
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

    optional = ("value_head", "expert.log_std")

    def __init__(
        self,
        chain: Chain,
        teacher: Chain | None = None,
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
        timesteps_per_sample: int = 8,
        freeze_vision: bool = False,
        freeze_context: bool = False,
        gradient_checkpointing: bool = False,
        value_head: bool = False,
        critic: Reads = "shared",
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
            prediction_type=chain.prediction_type,
        )
        super().__init__(given, words, freeze_vision, processor, path)
        own = self.architecture
        if own["prediction_type"] != chain.prediction_type:
            raise ValueError(
                f"policy.path={path}: its network predicts the {own['prediction_type']}, but policy.chain "
                f"{type(chain).__name__} needs one that predicts the {chain.prediction_type}"
            )
        check_teacher(chain, teacher)
        self.chain, self.teacher, self.critic, self.timesteps_per_sample = chain, teacher, critic, timesteps_per_sample
        self._build()
        self.value_head = self._critic() if value_head else None
        self.expert.gradient_checkpointing = gradient_checkpointing
        self._ready()
        if freeze_context:
            self.body.requires_grad_(False)

    def _build(self) -> None:
        own = self.architecture
        shared = {name: own[name] for name in ("hidden_size", "heads", "intermediate_size")}
        self.body = ContextTransformer(
            vocabulary=len(self.tokenizer), layers=own["layers"], proprio_dims=self.proprio_dims, **shared
        )
        sizes: Any = {"action_dims": self.action_dims, "chunk": self.chunk}
        kinds: Any = {"predicts_std": self.chain.predicts_std, "reads_end_time": self.chain.reads_end_time}
        self.expert = ActionExpert(layers=own["expert_layers"], **kinds, **sizes, **shared)

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
        hidden, there = self.body.read(visual, observation["instruction"], present, observation["proprio"])
        prefix = self.expert.prefix(hidden, there)
        return prefix, self._values(hidden[:, -1], visual, observation)
