"""What mmrl does with one checkpoint: load, sample, score, learn, export; compared with transformers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoProcessor

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.batch import Batch
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Episode, Request, Sampling, Turn
from mmrl.curricula.sampler import Shuffled
from mmrl.data.collate import collate
from mmrl.data.parity import Parity
from mmrl.data.rollout_data import RolloutData
from mmrl.engines.local import LocalEngine
from mmrl.learners.learner import Learner
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.objectives.weighting import TokenMean
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.text.single_turn import SingleTurn
from scripts.model_sweep.checkpoints import NotTinyError, build_checkpoint
from scripts.model_sweep.letters import PICTURES, Letters
from scripts.model_sweep.plain import load_plain, score_row
from scripts.model_sweep.processors import run_with_picture

EXACT = 1e-3
"""Nats; larger differences are another model."""
COMPLETIONS = 5
SAMPLING = Sampling(temperature=1.0, max_tokens=6)
POLICIES: dict[str, Any] = {"text": TextPolicy, "image": VisionLanguagePolicy}


@dataclass
class Outcome:
    """What was measured of one model type.

    `status` is "exact", "refused" (by name, before the first step), "refused late" (in the first iteration), "wrong"
    (another model, without a word), "crash", or "not tiny" (transformers itself does not build or run it tiny).
    """

    kind: str
    family: str
    status: str = ""
    reason: str = ""
    differences: dict[str, float] = field(default_factory=dict)  # nats, by what was compared with plain transformers
    fit: str = ""  # "yes", or what stopped the iteration
    rows: str = ""  # "shared" prompts, "padded" beside longer rows, or of "equal lengths" alone
    export: float | str = ""  # nats between export and trained policy, or the error

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON writes them."""
        return asdict(self)


def check_type(kind: str, family: str, folder: Path) -> Outcome:
    """Build a tiny checkpoint in a folder and try everything on it; FOLDER/rows.pt is left for the fresh process."""
    outcome = Outcome(kind, family)
    try:
        build_checkpoint(kind, family, folder / "start")
        plain = load_plain(folder / "start", family)
        run_plainly(plain, family, folder / "start")
    except Exception as error:
        return check_refusal(outcome, error, folder)
    try:
        policy = POLICIES[family](path=str(folder / "start")).eval()
    except ValueError as error:
        return end_outcome(outcome, "refused", error)
    except Exception as error:
        return end_outcome(outcome, "crash", error)
    outcome.rows = "equal lengths"
    if policy.takes_padding:
        outcome.rows = "shared" if policy.prefix_sharing.masks else "padded"
    try:
        _compare(outcome, policy, plain)
        _compare_packed(outcome, family, folder, plain)
    except ValueError as error:
        return end_outcome(outcome, "refused late", error)
    except Exception as error:
        return end_outcome(outcome, "crash", error)
    _fit_and_export(outcome, policy, folder)
    worst = max(outcome.differences.values())
    outcome.status = "exact" if worst <= EXACT else "wrong"  # NaN is wrong
    if outcome.status == "wrong":
        outcome.reason = ", ".join(
            f"{name} {value:.2g}" for name, value in outcome.differences.items() if not value <= EXACT
        )
    elif outcome.fit != "yes":
        outcome.status, outcome.reason = "crash", outcome.fit
    return outcome


def end_outcome(outcome: Outcome, status: str, error: Exception, before: str = "") -> Outcome:
    name = "" if isinstance(error, ValueError | NotTinyError) else f"{type(error).__name__}: "
    outcome.status, outcome.reason = status, before + name + " ".join(str(error).split())[:400]
    return outcome


def check_refusal(outcome: Outcome, error: Exception, folder: Path) -> Outcome:
    """Check what the policy says of a type that transformers alone does not run at a tiny size.

    A checkpoint of text, or one that transformers itself saved and does not read, has to be refused. Of a type without
    a checkpoint the configuration alone is read, which may say that it is no policy.
    """
    start, built = folder / "start", (folder / "start" / "config.json").exists()
    has_to = built and (outcome.family == "text" or "the weights do not fit" in str(error))
    try:
        if not has_to:
            start = folder / "configuration"
            CONFIG_MAPPING[outcome.kind]().save_pretrained(start)
        POLICIES[outcome.family](path=str(start))
    except ValueError as refusal:
        if has_to or "is no policy" in str(refusal):
            return end_outcome(outcome, "refused", refusal)
    except Exception as other:
        if has_to:
            return end_outcome(outcome, "crash", other)
    if has_to:
        return end_outcome(outcome, "wrong", error, "it loads, and transformers alone does not run it: ")
    before = "" if isinstance(error, NotTinyError) else "transformers does not run it: "
    return end_outcome(outcome, "not tiny", error, before)


def run_plainly(plain: Any, family: str, start: Path) -> None:
    """Run transformers alone on a row, and refuse logits that are not finite.

    The policy has to refuse a processor without a chat template, which transformers cannot run either.
    """
    if family == "image":
        processor = AutoProcessor.from_pretrained(start)
        if processor.chat_template is not None:
            run_with_picture(plain, processor)
        return
    if plain.config.is_encoder_decoder:
        return  # the policy has to refuse it
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        logits = plain(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    if not logits.isfinite().all():
        raise ValueError("its logits are not finite")


def _compare(outcome: Outcome, policy: Any, plain: Any) -> None:
    """Compare sampling and scoring of the same rows with the plain model on each row alone."""
    batch, done = sample_rows(policy, outcome.family)
    expected, entropy = score_plainly(policy, plain, done, batch)
    mask = batch["action_mask"]
    with torch.no_grad():
        scored = policy(batch)
        alone = torch.cat(
            [_widen(policy(batch.select(torch.tensor([i]))).logprobs, mask) for i in range(0, batch.rows, 3)]
        )
    outcome.differences |= {
        "sampled": _largest(batch["behavior_logprobs"] - expected, mask),
        "scored": _largest(scored.logprobs - expected, mask),
        "entropy": _largest(scored.entropy - entropy, mask),
        "alone": _largest((alone - expected[::3]), mask[::3]),
    }


def _compare_packed(outcome: Outcome, family: str, folder: Path, plain: Any) -> None:
    """Compare scoring with prompts packed into one sequence; an architecture that does not take it refuses it."""
    try:
        policy = POLICIES[family](path=str(folder / "start"), pack_prompts=True).eval()
    except ValueError:
        return
    batch, done = sample_rows(policy, family)
    expected, _ = score_plainly(policy, plain, done, batch)
    with torch.no_grad():
        outcome.differences["packed"] = _largest(policy(batch).logprobs - expected, batch["action_mask"])


def choose_task(policy: Any, family: str) -> Letters:
    """Prompts of which half have a picture, or all where a processor demands one."""
    if family == "text":
        return Letters()
    task = Letters(images=len(PICTURES))
    try:
        policy.encode(task[len(task) - 1].observation)
    except ValueError as error:
        if "with 0 image(s)" not in str(error):
            raise
        return Letters(images=len(task))
    return task


def sample_rows(policy: Any, family: str) -> tuple[Batch, list[Completion]]:
    """Sample completions of all prompts, and collate them."""
    task = choose_task(policy, family)
    prompts = [task[index] for index in range(len(task)) for _ in range(COMPLETIONS)]
    engine = LocalEngine()
    engine.sync(policy, 0)
    requests = [
        Request(prompt.observation, derive_seed("sweep", i), prompt_id=prompt.key) for i, prompt in enumerate(prompts)
    ]
    done = engine.sample(requests, SAMPLING)
    episodes = [Episode(p, i // COMPLETIONS, i % COMPLETIONS, [Turn(c)]) for i, (p, c) in enumerate(zip(prompts, done))]
    return collate(episodes, policy), done


def score_plainly(policy: Any, plain: Any, done: Sequence[Completion], batch: Batch) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies [N, T] of the plain model, each row alone."""
    made = [score_row(plain, plain_inputs(c), c.action, policy.forbidden) for c in done]
    return tuple(torch.stack([_pad(row, batch["action_mask"]) for row in part]) for part in zip(*made))  # type: ignore[return-value]


def plain_inputs(completion: Completion) -> dict[str, Tensor]:
    """The prompt's inputs with a batch axis where they run along tokens."""
    return {
        k: v[None] if k == "input_ids" or k.endswith("token_type_ids") else v for k, v in completion.observation.items()
    }


def _fit_and_export(outcome: Outcome, policy: Any, folder: Path) -> None:
    """Run one iteration of GRPO, export, and store rows with the trained policy's log-probs."""
    try:
        fit_once(policy, outcome.family)
        policy.eval()
        batch, done = sample_rows(policy, outcome.family)
        policy.save_pretrained(folder / "policy")
    except Exception as error:
        outcome.fit = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return
    outcome.fit = "yes"
    with torch.no_grad():
        logprobs = policy(batch).logprobs
    rows = range(0, len(done), 2)
    torch.save(
        {
            "family": outcome.family,
            "forbidden": list(policy.forbidden),
            "inputs": [plain_inputs(done[i]) for i in rows],
            "completions": [done[i].action for i in rows],
            "logprobs": [logprobs[i, : len(done[i].action)] for i in rows],
        },
        folder / "rows.pt",
    )


def fit_once(policy: Any, family: str) -> None:
    """Run one iteration of GRPO with a large learning rate."""
    data = RolloutData(
        task=choose_task(policy, family),
        rollout=SingleTurn(),
        engine=LocalEngine(),
        reward=WeightedSum({"letters": 1.0}),
        weighting=TokenMean(),
        curriculum=Shuffled(),
        sampling=SAMPLING,
        annotators={"group_advantage": GroupAdvantage()},
        pipeline=["group_advantage"],
        parity=Parity(),
        num_prompts=4,
        group_size=4,
    )
    learner = Learner(policy, Objective({"policy": ClippedSurrogate()}), lambda parts: torch.optim.Adam(parts, 1e-2))
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(learner, datamodule=data)
    if all(torch.equal(old, new) for old, new in zip(before, policy.parameters())):
        raise RuntimeError("no weight has changed")


def _pad(row: Tensor, like: Tensor) -> Tensor:
    return torch.nn.functional.pad(row, (0, like.shape[1] - len(row)))


def _widen(part: Tensor, like: Tensor) -> Tensor:
    return torch.nn.functional.pad(part, (0, like.shape[1] - part.shape[1]))


def _largest(difference: Tensor, mask: Tensor) -> float:
    value = float(difference[mask].abs().nan_to_num(math.inf).max())
    return value
