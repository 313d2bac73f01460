"""Action-scoring language model: a softmax over the admissible strings of an environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mmrl.core.batch import Batch, Ragged
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.ops.choice import draw
from mmrl.ops.logprob import logprob_entropy
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.control.encoder import perceptron
from mmrl.policies.text.actions.admissible import arrange_scores, encode_strings, split_strings
from mmrl.policies.text.language_model import refuse_mean
from mmrl.policies.text.loading import VALUE_HEAD, build_value_head
from mmrl.policies.text.policy import TextPolicy


class ActionScorer(Policy):
    """Any causal language model of transformers as a policy over the admissible strings of each decision.

    l_a = sum_t log p(w_t | prompt, w_<t) over the tokens w of the string a, and pi(a) = softmax_a(l_a / temperature).
    A row is a decision. Its one choice is the index of a string in the observation's `admissible_actions`, whose number
    may differ between decisions. The strings of a decision are completions of one prompt, which `TextPolicy` reads once
    where the network allows it. The value is predicted from the state of the prompt's last token.

    Source: Grounding Large Language Models in Interactive Environments with Online Reinforcement Learning (GLAM), 2023,
    arXiv:2302.02662.

    Args:
        path: hub id or folder of a language model with its tokenizer, or a folder that `save_pretrained` wrote.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        value_head: also predict the return from each prompt.
        value_hidden: widths of hidden layers of the value head, with sigmoids; none for a linear one.
        reduction: of the log-probabilities of a string's tokens to its score: their sum is the log-probability of the
            string, which favours short strings; their mean does not depend on the length by itself.
        end_token: whether the token that ends a text counts as the last token of each string.
        options: further arguments of `TextPolicy`, such as `lora`, `dtype` or `template_arguments`.
    """

    pads_left = True
    chooses_tokens = False

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        value_head: bool = False,
        value_hidden: Sequence[int] = (),
        reduction: Literal["sum", "mean"] = "sum",
        end_token: bool = False,
        **options: Any,
    ):
        super().__init__()
        self.reduction, self.end_token = reduction, end_token
        # the last layer's states before each token, of which the value head reads the first
        self.language_model = TextPolicy(path, config, hidden_layers=[1.0] if value_head else [], **options)
        self.value_head: nn.Module | None = None
        if value_head:
            widths = [self.language_model.hidden_size, *value_hidden]
            self.value_head = build_value_head(widths[-1], path, [perceptron(widths, nn.Sigmoid)])

    @property
    def path(self) -> str | None:
        return self.language_model.path

    @property
    def takes_padding(self) -> bool:  # type: ignore[override]
        return self.language_model.takes_padding

    @property
    def leaves_weights_out(self) -> bool:  # type: ignore[override]
        return self.language_model.leaves_weights_out

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return cls.predicts(init_args)

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values"} if init_args.get("value_head") else ())

    @classmethod
    def refuse_settings(cls, init_args: Mapping[str, Any]) -> None:
        TextPolicy.refuse_settings(init_args)

    def measure_network(self) -> None:
        self.language_model.measure_network()

    def check_sampling(self, sampling: Sampling) -> None:
        super().check_sampling(sampling)
        refuse_mean(sampling)

    def observation_names(self) -> tuple[str, ...]:
        return ("messages", "admissible_actions")

    def contract(self) -> dict[str, Any]:
        return {"action.reduction": self.reduction, "action.end_token": self.end_token}

    # ---------------------------------------------------------------- observations

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        """Encode a prompt and its strings: `input_ids` [P], `admissible_ids` of all strings, `admissible_sizes` [K]."""
        if "admissible_actions" not in raw:
            raise ValueError(
                "policy=action_scorer chooses among the admissible actions of an observation, and this one has only "
                f"{sorted(raw)}; choose a task that states them (TextStep.admissible_actions), such as task=gridworld "
                "with rollout=text_environment, or another policy"
            )
        require_inputs(raw, ["messages"], self)
        model = self.language_model
        encoded = model.encode({name: value for name, value in raw.items() if name != "admissible_actions"})
        end = [model.tokenizer.eos_token_id] if self.end_token else []
        strings = encode_strings(raw["admissible_actions"], model.tokenizer, model.forbidden, end)
        tokens = len(encoded["input_ids"]) + max(map(len, strings))
        if model.context_length is not None and tokens > model.context_length:
            raise ValueError(
                f"policy=action_scorer: a prompt of {len(encoded['input_ids'])} tokens and its longest admissible "
                f"action have {tokens}, more than the {model.context_length} positions of the model "
                "(max_position_embeddings); shorten the observation or rollout.history"
            )
        sizes = torch.tensor([len(ids) for ids in strings])
        return {
            **encoded,
            "admissible_ids": torch.tensor([token for ids in strings for token in ids]),
            "admissible_sizes": sizes,
        }

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor | Ragged]:
        out = dict(self.language_model.collate(observations))
        for name in ("admissible_ids", "admissible_sizes"):
            rows = [observation[name] for observation in observations]
            out[name] = Ragged(torch.cat(rows), torch.tensor([len(row) for row in rows]))
        return out

    # ---------------------------------------------------------------- scores

    def score(self, observation: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Score the admissible strings of N collated decisions.

        Returns:
            Logits [N, K], the largest of a row 0 and `MASKED_LOGIT` beyond its strings; values [N], or None.
        """
        counts = observation["admissible_sizes"].lengths.to(self.device)
        # R strings of N decisions, one after the other: ids [R, L], their mask, and the decision of each
        ids, mask = split_strings(observation["admissible_ids"].values, observation["admissible_sizes"].values)
        decision = torch.arange(len(counts), device=ids.device).repeat_interleave(counts)
        rows = Batch(action=ids, action_mask=mask, temperature=mask.new_ones(len(ids), dtype=torch.float32))
        rows |= {f"obs.{name}": observation[name][decision] for name in ("input_ids", "attention_mask")}
        self.language_model.one_pass = self.one_pass
        out = self.language_model(rows.with_columns(prompt_id=decision))
        logits = arrange_scores(torch.where(mask, out.logprobs, 0.0), mask, counts, self.reduction)
        if self.value_head is None:
            return logits, None
        first = counts.cumsum(0) - counts  # string of each decision
        states = out.extra["hidden_states"][first, 0, 0]  # [N, D] of the prompt's last token
        return logits, self.value_head(states.to(next(self.value_head.parameters()).dtype))[:, 0].float()

    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        return self.act_groups(observation, torch.arange(len(noise)), sampling, noise)

    @torch.no_grad()
    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        self.check_sampling(sampling)
        return self._draw(observation, *self.score(observation), owner, sampling, noise)

    def list_strings(self, observation: Observation) -> list[list[int]]:
        """Return the token ids of each string of an encoded observation."""
        strings = observation["admissible_ids"].split(observation["admissible_sizes"].tolist())
        return [string.tolist() for string in strings]

    def choose(
        self, observation: Mapping[str, Any], logprobs: Tensor, owner: Tensor, sampling: Sampling, noise: Noise
    ) -> Action:
        """Choose by an engine's log-probs of the strings, see `mmrl.engines.vllm.strings.ChoosesStrings`."""
        self.check_sampling(sampling)
        sizes = observation["admissible_sizes"]
        inside = torch.arange(logprobs.shape[1]) < sizes.values[:, None]
        logits = arrange_scores(logprobs, inside, sizes.lengths, self.reduction)
        return self._draw(observation, logits, None, owner, sampling, noise)

    def _draw(
        self,
        observation: Mapping[str, Any],
        logits: Tensor,
        values: Tensor | None,
        owner: Tensor,
        sampling: Sampling,
        noise: Noise,
    ) -> Action:
        """Draw a string for each choice by the logits [N, K] of N decisions."""
        owner = owner.to(logits.device)
        choices, logprobs, support = draw(
            logits[owner],
            noise.uniform().to(logits.device),
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            greedy=sampling.decode == "argmax",
        )
        return Action(
            action=choices[:, None],
            behavior_logprobs=logprobs[:, None],
            action_mask=torch.ones_like(choices, dtype=torch.bool)[:, None],
            output=[self._text(observation, n, i) for n, i in zip(owner.tolist(), choices.tolist())],
            values=None if values is None else values[owner],
            extra={} if support is None else {"support_ids": support[:, None]},
        )

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        return self.language_model.token_texts(ids)

    def _text(self, observation: Mapping[str, Any], row: int, number: int) -> str:
        """The string of this number in a decision."""
        strings = self.list_strings({name: observation[name][row] for name in ("admissible_ids", "admissible_sizes")})
        return self.language_model.decode(strings[number])

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor | None:
        return None if self.value_head is None else self.score(observation)[1]

    def forward(self, batch: Batch) -> PolicyOutput:
        logits, values = self.score(batch.observation())
        choices = batch["action"]
        support = batch.get("support_ids")
        logprobs, entropy = logprob_entropy(logits[:, None], choices, batch["temperature"], support)
        return PolicyOutput(logprobs, entropy, values)

    # ---------------------------------------------------------------- demonstrations and files

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        actions = list(raw["admissible_actions"])
        if output not in actions:
            raise ValueError(f"the demonstrated action {output!r} is none of the admissible ones: {actions}")
        return torch.tensor([actions.index(output)])

    def save_pretrained(self, folder: str | Path) -> None:
        """Save the language model as `TextPolicy` does, in transformers' format, and the value head."""
        folder = Path(folder)
        self.language_model.save_pretrained(folder)
        if self.value_head is not None:
            save_file(self.value_head.state_dict(), folder / VALUE_HEAD)
        (folder / "mmrl_policy.json").write_text(json.dumps({"class": type(self).__name__}) + "\n")
