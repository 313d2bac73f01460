"""What mmrl adds to mixtures of experts, tried on a tiny checkpoint of a type; compared with transformers and peft."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from mmrl.callbacks.export import save_adapters
from mmrl.core.batch import Batch
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Episode, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.objectives.objective import Objective
from mmrl.objectives.regularizer import LoadBalancing
from mmrl.objectives.weighting import TokenMean
from mmrl.policies.text.loading import merge_lora
from mmrl.policies.text.routing.routers import find_routers
from scripts.model_sweep.checkpoints import build_checkpoint
from scripts.model_sweep.checks import POLICIES
from scripts.model_sweep.configs import every_type, tiny_config
from scripts.model_sweep.plain import load_plain

COUNT = re.compile(r"(moe_)?(n|num)_(local_|routed_)?experts")
"""Names of the number of experts in configurations."""
EXACT = 1e-4
TEXTS = ("ab", "ab", "ab", "hello abc")
ADAPTERS = {"r": 2, "target_modules": [], "target_parameters": "experts"}


def expert_types(ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """List the types and families whose tiny configuration states more than one expert, at any depth."""
    kinds = []
    for kind, family in every_type():
        try:
            config = tiny_config(kind, ids).to_dict()
        except Exception:  # no valid configuration at these sizes
            continue
        if any(isinstance(value, int) and value > 1 for value in find_counts(config)):
            kinds.append((kind, family))
    return kinds


def find_counts(config: Any) -> Iterator[Any]:
    """Iterate over the numbers of experts in a nested configuration."""
    if not isinstance(config, Mapping):
        return
    for name, value in config.items():
        if COUNT.fullmatch(str(name)):
            yield value
        yield from find_counts(value)


def check_experts(kind: str, family: str, folder: Path) -> dict[str, str]:
    """Try all of `CHECKS` on a tiny checkpoint.

    Returns:
        By name of the check "yes", or why it is refused. What is computed wrongly raises an AssertionError.
    """
    start = folder / "start"
    build_checkpoint(kind, family, start)
    results = {}
    for name, check in CHECKS.items():
        try:
            check(str(start), family, folder)
        except ValueError as error:
            results[name] = " ".join(str(error).split())
        else:
            results[name] = "yes"
    return results


def sample(policy: Any) -> tuple[Batch, list[Completion]]:
    """Sample rows of two prompts, the first of which three rows share."""
    prompts = [Prompt(key=f"a/b/{text}", messages=({"role": "user", "content": text},)) for text in TEXTS]
    engine = LocalEngine()
    engine.sync(policy, 0)
    requests = [Request(p.observation, derive_seed("experts", i), prompt_id=p.key) for i, p in enumerate(prompts)]
    done = engine.sample(requests, Sampling(max_tokens=5))
    batch = collate([Episode(p, i, 0, [Turn(c)]) for i, (p, c) in enumerate(zip(prompts, done))], policy)
    return batch.with_columns(loss_weights=TokenMean()(batch, lambda number: number)), done


def check_freeze(path: str, family: str, folder: Path) -> None:
    """A backward pass gives gradients to other weights, and none to those of routers."""
    policy = POLICIES[family](path=path, freeze_router=True)
    batch, _ = sample(policy)
    policy.train()(batch).logprobs.sum().backward()
    frozen = {id(weight) for router in find_routers(policy.model) for weight in router.module.parameters()}
    assert frozen and all(weight.grad is None for weight in policy.parameters() if id(weight) in frozen)
    assert any(weight.grad is not None and weight.grad.abs().max() > 0 for weight in policy.parameters())


def check_replay(path: str, family: str, folder: Path) -> None:
    """Scores are those of sampling; and with other routers, experts still get the tokens that were recorded."""
    policy = POLICIES[family](path=path, router_replay=True).eval()
    batch, done = sample(policy)
    mask = batch["action_mask"]
    with torch.no_grad():
        assert (policy(batch).logprobs - batch["behavior_logprobs"])[mask].abs().max() < EXACT
        for router in find_routers(policy.model):
            for weight in router.module.parameters():
                weight.add_(torch.randn_like(weight))
    alone = batch.select(torch.tensor([3]))
    policy.train()
    with note_experts(policy.model) as calls:
        policy(alone).logprobs.sum().backward()
    recorded = done[3].extra["routed_experts"]  # [tokens, layers, k]
    assert len(calls) == recorded.shape[1], f"{len(calls)} calls of experts in {recorded.shape[1]} layers"
    for layer, call in calls.items():
        assert torch.equal(call.sort(-1).values, recorded[:, layer].long().sort(-1).values), f"layer {layer}"
    gradients = [weight.grad for router in find_routers(policy.model) for weight in router.module.parameters()]
    assert any(gradient is not None and gradient.abs().max() > 0 for gradient in gradients)


class note_experts:
    """Note inside the context the experts [tokens, k] that get each token, by number of the router.

    They are an argument of the modules of experts; where these get all tokens, the router weighs others with zero.
    """

    def __init__(self, model: nn.Module):
        self.model, self.calls, self.handles = model, {}, []  # type: ignore[var-annotated]

    def __enter__(self) -> dict[int, Tensor]:
        routers = {id(router.module): number for number, router in enumerate(find_routers(self.model))}
        for block in self.model.modules():
            parts = dict(block.named_children())
            number = next((routers[id(part)] for part in parts.values() if id(part) in routers), None)
            if number is not None and "experts" in parts:
                hook = partial(self._note_arguments, number)
                self.handles.append(parts["experts"].register_forward_pre_hook(hook, with_kwargs=True))
            if id(block) in routers:  # a router that holds its experts
                for name, part in block.named_modules():
                    if name.rpartition(".")[2] == "experts":
                        hook = partial(self._note_arguments, routers[id(block)])
                        self.handles.append(part.register_forward_pre_hook(hook, with_kwargs=True))
                self.handles.append(block.register_forward_hook(partial(self._note_outputs, routers[id(block)])))
        return self.calls

    def _note_arguments(self, number: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        ids = [each for each in tensors if not each.is_floating_point()]
        if ids:
            self.calls[number] = ids[0].reshape(-1, ids[0].shape[-1])

    def _note_outputs(self, number: int, module: nn.Module, args: tuple[Any, ...], outputs: Any) -> None:
        kind = type(module).__name__
        if kind == "Llama4Router":
            self.calls[number] = outputs[0].ne(0).nonzero()[:, 1].view(len(outputs[0]), -1)
        elif kind == "JetMoeTopKGating":  # tokens ordered by expert, and how many each expert has
            _, tokens, _, sizes, logits = outputs
            experts = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
            self.calls[number] = experts[tokens.argsort(stable=True)].view(len(logits), -1)

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()


def check_balance(path: str, family: str, folder: Path) -> None:
    """Loss and gradients are those of transformers' own loss on whole rows."""
    policy = POLICIES[family](path=path, output_router_logits=True)
    batch, done = sample(policy)
    plain = copy.deepcopy(policy.model)
    loss, _ = Objective({"balance": LoadBalancing()})(policy.train()(batch), batch)
    loss.backward()
    rows = [torch.cat([each.observation["input_ids"], each.action[:-1]]) for each in done]
    # models that do not mask padding get each row alone, whose losses are no mean
    width = {len(row) for row in rows}
    ids = torch.nn.utils.rnn.pad_sequence(rows, True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], True)
    assert len(width) > 1
    with evaluation_mode(plain):
        expected = plain(input_ids=ids, attention_mask=mask, use_cache=False, output_router_logits=True).aux_loss
    expected.backward()
    assert abs(float(loss.detach() - expected.detach())) < EXACT, f"{float(loss)} and {float(expected)}"
    others = dict(plain.named_parameters())
    for name, weight in policy.model.named_parameters():
        if (other := others[name].grad) is not None:
            assert weight.grad is not None and (weight.grad - other).abs().max() < EXACT * (1 + other.abs().max()), name


def check_adapters(path: str, family: str, folder: Path) -> None:
    """Adapters on experts are merged exactly, and transformers and peft read the exports."""
    policy = POLICIES[family](path=path, lora=dict(ADAPTERS)).eval()
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        before = policy.model(input_ids=ids, use_cache=False).logits
        for weight in policy.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) * 0.3)
        logits = policy.model(input_ids=ids, use_cache=False).logits
        assert (logits - before).abs().max() > 1e-3, "adapters on experts change nothing"
        policy.save_pretrained(folder / "merged")
        compare_logits(merge_lora(policy.model), ids, logits, "merged weights")
        compare_logits(load_plain(folder / "merged", family), ids, logits, "the export")
        save_adapters(policy, folder / "adapters")
        read = PeftModel.from_pretrained(load_plain(path, family), folder / "adapters")
        compare_logits(read, ids, logits, "adapters read by peft")


def compare_logits(model: Any, ids: Tensor, logits: Tensor, name: str) -> None:
    """Compare a model's logits of some tokens with expected ones."""
    difference = float((model(input_ids=ids, use_cache=False).logits - logits).abs().max())
    assert difference < EXACT * (1 + float(logits.abs().max())), f"{name} differ by {difference}"


CHECKS: dict[str, Callable[[str, str, Path], None]] = {
    "freeze_router": check_freeze,
    "router_replay": check_replay,
    "load_balancing": check_balance,
    "expert adapters": check_adapters,
}
