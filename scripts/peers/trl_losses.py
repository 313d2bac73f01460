"""Compare losses and their gradients with TRL's on random batches: python scripts/peers/trl_losses.py [BATCHES].

TRL's trainers are built on a copy of the policy's model and asked for the loss of a batch; on our side it is that of a
recipe. One row a loss: both numbers for the last batch, and over all batches the largest difference of the loss, and of
an entry of the gradient. Reward models are in trl_reward_losses.py.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.gkd import GKDConfig, GKDTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

from mmrl.annotators.mismatched_kl import swap_prompts
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch, pad_stack
from mmrl.core.columns import COLLATED
from mmrl.core.types import Context, Sampling

LENGTH = 8  # longest completion
SEQUENCES = "weighting._target_=mmrl.objectives.weighting.SequenceMean"
ADVANTAGES = {
    "grpo": (["recipe=grpo", SEQUENCES], {"loss_type": "grpo"}),
    "grpo_kl": (["recipe=grpo_kl"], {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False}),
    "grpo_kl, with the ratio": (
        ["recipe=grpo_kl", "objective.terms.kl.old=behavior_logprobs"],
        {"loss_type": "grpo", "beta": 0.04},
    ),
    "dapo": (["recipe=dapo"], {"loss_type": "dapo", "epsilon_high": 0.28}),
    "dr_grpo": (["recipe=dr_grpo", f"sampling.max_tokens={LENGTH}"], {"loss_type": "dr_grpo"}),
    "dual clip": (
        ["recipe=grpo", SEQUENCES, "objective.terms.policy.clip_dual=1.25"],
        {"loss_type": "grpo", "delta": 1.25},
    ),
    "gspo": (
        ["recipe=gspo"],
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    ),
    "cispo": (["recipe=cispo"], {"loss_type": "cispo", "epsilon_high": 5.0}),
    "sapo": (["recipe=sapo"], {"loss_type": "sapo"}),
}
PREFERENCES = {
    "dpo": (["recipe=dpo"], {"loss_type": ["sigmoid"]}),
    "ipo": (["recipe=ipo", "objective.terms.preference.reduction=mean"], {"loss_type": ["ipo"]}),
    "hinge": (["recipe=dpo", "objective.terms.preference.loss_type=hinge"], {"loss_type": ["hinge"]}),
    "robust": (
        ["recipe=cdpo", "objective.terms.preference.loss_type=robust"],
        {"loss_type": ["robust"], "label_smoothing": 0.1},
    ),
}


@dataclass
class Result:
    """The loss and its gradient by parameter, of one side."""

    loss: float
    gradient: dict[str, Tensor]


class Case:
    """The learner and the data module of a recipe, with a policy and a reference that differ, and random rows."""

    def __init__(self, words: list[str], folder: str, seed: int, paired: bool = False):
        quiet = ("trainer.logger=false", "trainer.callbacks=null", "trainer.accelerator=cpu", f"run_dir='{folder}'")
        cli = CLI(to_lightning(compose([*words, *quiet])))
        self.learner, self.data, self.policy = cli.model, cli.datamodule, cli.model.policy
        self.generator = torch.Generator().manual_seed(seed)
        self.perturb(self.policy, 0.1)
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)
        self.perturb(self.reference, 0.02)
        if self.learner.reference:
            self.learner.models["reference"] = self.reference
        prompts = [self._ids(3, 6) for _ in range(4)]
        self.prompts = [prompts[row // 2 if paired else row % 4] for row in range(8)]
        self.completions = [self._ids(2, LENGTH) for _ in self.prompts]
        self.advantages = torch.randn(8, generator=self.generator)
        self.batch = self._build_batch()

    @torch.no_grad()
    def perturb(self, model: Any, scale: float) -> None:
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=self.generator))

    def _ids(self, least: int, most: int) -> Tensor:
        length = int(torch.randint(least, most + 1, (1,), generator=self.generator))
        return torch.randint(5, 60, (length,), generator=self.generator)

    def _build_batch(self) -> Batch:
        rows = torch.arange(len(self.prompts))
        distinct = list({tuple(p.tolist()): None for p in self.prompts})
        prompt = torch.tensor([distinct.index(tuple(p.tolist())) for p in self.prompts])
        observation = self.policy.collate([{"input_ids": ids} for ids in self.prompts])
        mask = pad_stack([torch.ones(len(c), dtype=torch.bool) for c in self.completions])
        plain = {name: torch.zeros(len(rows)) for name in COLLATED}
        batch = Batch(
            {
                **plain,
                **{f"obs.{name}": column for name, column in observation.items()},
                "action": pad_stack(self.completions),
                "action_mask": mask,
                "temperature": torch.ones(len(rows)),
                "prompt_id": prompt,
                "group": prompt,
                "episode": rows,
                "step": torch.zeros_like(rows),
                "is_demo": torch.zeros_like(rows).bool(),
                "preference": torch.tensor([1.0, -1.0]).repeat(len(rows) // 2),
                "advantages": torch.where(mask, self.advantages[:, None], 0),
            }
        )
        with torch.no_grad():
            old = self.policy(batch).logprobs + 0.3 * torch.randn(mask.shape, generator=self.generator)
        return batch.with_columns(behavior_logprobs=torch.where(mask, old, 0))

    def ours(self) -> Result:
        """The recipe's annotators, weighting and objective."""
        batch = self.batch
        ctx = Context(None, None, self.policy, Sampling(), seed=0, iteration=0, models=dict(self.learner.models))
        for name, annotator in self.data.annotators.items():
            if name != "group_advantage":
                batch = annotator(batch, ctx)
        batch = batch.with_columns(loss_weights=self.data.weighting(batch, lambda number: number))
        loss, _ = self.learner.objective(self.learner.outputs(batch), batch)
        return backward(loss, self.policy.model)

    def sequences(self, rows: list[int] | None = None, prompts: list[Tensor] | None = None) -> dict[str, Tensor]:
        """Prompts and completions end to end, padded on the right, as TRL's trainers on data sets read them."""
        indices = range(len(self.prompts)) if rows is None else rows
        pairs = [((prompts or self.prompts)[row], self.completions[row]) for row in indices]
        place = [torch.cat([torch.zeros(len(p)), torch.ones(len(c))]).long() for p, c in pairs]
        return {
            "input_ids": pad_stack([torch.cat(pair) for pair in pairs]),
            "attention_mask": pad_stack([torch.ones_like(part) for part in place]),
            "completion_mask": pad_stack(place),
        }


def backward(loss: Tensor, model: Any) -> Result:
    model.zero_grad()
    loss.backward()
    gradient = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return Result(float(loss), gradient)


def options(kind: Any, folder: str, **more: Any) -> Any:
    """A configuration of TRL without logs, on the CPU in fp32."""
    common = {"output_dir": folder, "report_to": [], "use_cpu": True, "bf16": False, "gradient_checkpointing": False}
    return kind(**common, per_device_train_batch_size=8, **more)


def advantage_loss(case: Case, folder: str, beta: float = 0.0, **words: Any) -> Result:
    """GRPOTrainer's loss."""
    args = options(GRPOConfig, folder, num_generations=2, max_completion_length=LENGTH, **words)
    trainer = GRPOTrainer(
        model=copy.deepcopy(case.policy.model),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "1+1="}] * 8),
        processing_class=case.policy.tokenizer,
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.beta = beta  # with which the constructor would load a reference from a path
    batch, mask = case.batch, case.batch["action_mask"].long()
    with torch.no_grad():
        reference = case.reference(batch).logprobs
    inputs = {
        "prompt_ids": batch["obs.input_ids"],
        "prompt_mask": batch["obs.attention_mask"],
        "completion_ids": batch["action"],
        "completion_mask": mask,
        "advantages": case.advantages,
        "old_per_token_logps": batch["behavior_logprobs"],
        "ref_per_token_logps": reference,
        "num_items_in_batch": mask.sum(),
    }
    trainer.model.train()
    return backward(trainer._compute_loss(trainer.model, inputs), trainer.model)


def preference_loss(case: Case, folder: str, **words: Any) -> Result:
    """DPOTrainer's loss; its batches have the chosen rows first."""
    args = options(DPOConfig, folder, beta=0.1, **words)
    pairs = Dataset.from_list([{"prompt": "1", "chosen": "2", "rejected": "3"}] * 8)
    trainer = _trainer(DPOTrainer, case, args, pairs, ref_model=copy.deepcopy(case.reference.model))
    inputs = case.sequences([0, 2, 4, 6, 1, 3, 5, 7])
    return backward(trainer._compute_loss(trainer.model, inputs, False), trainer.model)


def kto_loss(case: Case, folder: str) -> Result:
    """KTOTrainer's loss, with the reference point from the same mismatched rows as ours."""
    args = options(KTOConfig, folder, beta=0.1)
    rows = Dataset.from_list([{"prompt": str(i), "completion": str(i), "label": i % 2 == 0} for i in range(8)])
    trainer = _trainer(KTOTrainer, case, args, rows, ref_model=copy.deepcopy(case.reference.model))
    moved = swap_prompts(case.batch)
    prompts = [ids[mask.bool()] for ids, mask in zip(moved["obs.input_ids"], moved["obs.attention_mask"])]
    mismatched = {f"KL_{name}": part for name, part in case.sequences(prompts=prompts).items()}
    inputs = {**case.sequences(), **mismatched, "label": case.batch["preference"] > 0}
    return backward(trainer._compute_loss(trainer.model, inputs, False), trainer.model)


def reference_free_loss(case: Case, folder: str, trainer_class: Any, args: Any, loss: Callable) -> Result:
    """The loss of CPOTrainer or ORPOTrainer from the mean log-probs of chosen and rejected rows."""
    pairs = Dataset.from_list([{"prompt": "1", "chosen": "2", "rejected": "3"}] * 8)
    trainer = _trainer(trainer_class, case, args, pairs)
    trainer.padding_value = case.policy.tokenizer.pad_token_id
    inputs = {}
    for name, rows in (("chosen", [0, 2, 4, 6]), ("rejected", [1, 3, 5, 7])):
        part = case.sequences(rows)
        inputs[f"{name}_labels"] = part["input_ids"].masked_fill(part["completion_mask"] == 0, -100)
        inputs |= {f"{name}_input_ids": part["input_ids"], f"{name}_attention_mask": part["attention_mask"]}
    return backward(loss(trainer, *trainer.concatenated_forward(trainer.model, inputs)[:2]), trainer.model)


def sft_loss(case: Case, folder: str) -> Result:
    """SFTTrainer's loss on the completions."""
    rows = Dataset.from_list([{"prompt": "1", "completion": "2"}])
    trainer = _trainer(SFTTrainer, case, options(SFTConfig, folder), rows)
    part = case.sequences()
    part["labels"] = part["input_ids"].masked_fill(part.pop("completion_mask") == 0, -100)
    return backward(trainer.compute_loss(trainer.model, part), trainer.model)


def gkd_loss(case: Case, folder: str, beta: float) -> Result:
    """GKDTrainer's loss to the teacher."""
    args = options(GKDConfig, folder, beta=beta)
    words = Dataset.from_list([{"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]}])
    trainer = _trainer(GKDTrainer, case, args, words, teacher_model=copy.deepcopy(case.reference.model))
    part = case.sequences()
    part["labels"] = part["input_ids"].masked_fill(part.pop("completion_mask") == 0, -100)
    return backward(trainer.compute_loss(trainer.model, part), trainer.model)


def _trainer(kind: Any, case: Case, args: Any, rows: Dataset, **more: Any) -> Any:
    model = copy.deepcopy(case.policy.model)
    return kind(model=model, args=args, train_dataset=rows, processing_class=case.policy.tokenizer, **more)


def reference_free_result(case: Case) -> Result:
    """Our ORPO or CPO loss without the chosen rows' NLL, which TRL takes over other tokens."""
    out, batch = case.learner.outputs(case.batch), case.batch
    (term,) = case.learner.objective.terms.values()
    return backward(term(out, batch).mean() - term.metrics(out, batch)["nll"].mean(), case.policy.model)


def compare(seed: int = 0) -> dict[str, tuple[Result, Result]]:
    """TRL's result and ours of every loss on one random batch."""
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (words, theirs) in ADVANTAGES.items():
            case = Case(words, folder, seed)
            out[name] = advantage_loss(case, folder, **theirs), case.ours()
        for name, (words, theirs) in PREFERENCES.items():
            case = Case(words, folder, seed, paired=True)
            out[name] = preference_loss(case, folder, **theirs), case.ours()
        case = Case(["recipe=kto"], folder, seed, paired=True)
        out["kto"] = kto_loss(case, folder), case.ours()
        case = Case(["recipe=simpo"], folder, seed, paired=True)
        args = options(CPOConfig, folder, loss_type="simpo", beta=2.0, simpo_gamma=1.0, cpo_alpha=0.0)
        theirs = reference_free_loss(case, folder, CPOTrainer, args, lambda t, *logps: t.cpo_loss(*logps)[0].mean())
        out["simpo"] = theirs, case.ours()
        case = Case(["recipe=cpo"], folder, seed, paired=True)
        args = options(CPOConfig, folder, loss_type="sigmoid", beta=0.1)
        theirs = reference_free_loss(case, folder, CPOTrainer, args, lambda t, *logps: t.cpo_loss(*logps)[0].mean())
        out["cpo"] = theirs, reference_free_result(case)
        case = Case(["recipe=orpo"], folder, seed, paired=True)
        args = options(ORPOConfig, folder, beta=0.1)
        theirs = reference_free_loss(
            case, folder, ORPOTrainer, args, lambda t, *logps: -t.odds_ratio_loss(*logps)[0].mean()
        )
        out["orpo"] = theirs, reference_free_result(case)
        case = Case(["recipe=sft_conversations"], folder, seed)
        out["sft"] = sft_loss(case, folder), case.ours()
        for beta in (0.0, 0.5, 1.0):
            case = Case(["recipe=gkd", f"objective.terms.distillation.beta={beta}"], folder, seed)
            case.learner.models["teacher"] = case.reference
            out[f"gkd {beta}"] = gkd_loss(case, folder, beta), case.ours()
    return out


def differences(theirs: Result, ours: Result) -> tuple[float, float]:
    """Of the loss, and the largest of an entry of the gradient."""
    if theirs.gradient.keys() != ours.gradient.keys():
        raise ValueError(f"other parameters have gradients: {theirs.gradient.keys() ^ ours.gradient.keys()}")
    largest = max(float((theirs.gradient[name] - ours.gradient[name]).abs().max()) for name in ours.gradient)
    return abs(theirs.loss - ours.loss), largest


def main(batches: int, compare: Callable[[int], dict[str, tuple[Result, Result]]] = compare) -> None:
    """Print the table of a comparison on random batches."""
    print("| loss | TRL's | ours | difference | of the gradient, which is at most |\n|---|---|---|---|---|")
    results = [compare(seed) for seed in range(batches)]
    for name, (theirs, ours) in results[-1].items():
        loss, gradient = map(max, zip(*(differences(*result[name]) for result in results)))
        most = max(float(part.abs().max()) for result in results for part in result[name][1].gradient.values())
        print(f"| {name} | {theirs.loss:.6f} | {ours.loss:.6f} | {loss:.1e} | {gradient:.1e}, {most:.1e} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches", nargs="?", type=int, default=1, metavar="BATCHES", help="random batches")
    main(parser.parse_args().batches)
