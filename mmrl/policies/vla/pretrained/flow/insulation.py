"""Knowledge insulation: the expert reads the vision-language model without sending it gradients."""

from __future__ import annotations

from torch import Tensor

from mmrl.policies.vla.chains.base import Prefix


def insulate(prefix: Prefix, hidden: Tensor) -> Prefix:
    """Return the prefix without its gradient; the weights of the context stay in the graph, with a gradient of zero.

    DDP and FSDP2 wait for a gradient of every trainable weight, which the zero gives them.

    Args:
        prefix: encoded contexts, each [N, ...].
        hidden: [N, L, width] features of the context, which every weight of it enters.
    """
    *first, last = (part.detach() for part in prefix)
    return (*first, last + 0 * hidden.sum())


def check_insulation(insulated: bool, frozen: bool, critic_trains: bool) -> None:
    """Refuse insulation of a context that nothing else trains, or that is frozen anyway."""
    if insulated and frozen:
        raise ValueError(
            "policy.knowledge_insulation keeps gradients of the expert out of a context that learns from something "
            "else, but policy.freeze_context=true: set one of them to false"
        )
    if insulated and not critic_trains:
        raise ValueError(
            "policy.knowledge_insulation leaves the context without a gradient: set policy.value_head=true and "
            "policy.critic=shared, or policy.freeze_context=true, which saves the backward pass"
        )
