"""Choose among strings by vLLM's scores of them, for policies that act by a language model without writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from mmrl.core.rng import Noise
from mmrl.core.types import Completion, Observation, Request, Sampling
from mmrl.engines.base import context_id, contexts, distinct
from mmrl.engines.vllm.backend import Backend, EngineOutput, EnginePrompt, EngineSampling
from mmrl.engines.vllm.sampling import check_prompt
from mmrl.policies.base import Action

SCORING = EngineSampling(
    # vLLM always draws a token, which is not read
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    min_p=0.0,
    max_tokens=1,
    greedy=True,
    stop=(),
    stop_ids=(),
    forbidden=(),
    support=0,
    scores_prompt=True,
)


@runtime_checkable
class ChoosesStrings(Protocol):
    """A policy whose choice is one of several strings, by a language model's log-probabilities of their tokens."""

    language_model: Any
    """The policy whose weights vLLM holds."""

    def list_strings(self, observation: Observation) -> list[list[int]]:
        """Return the token ids of each string of an encoded observation."""

    def choose(
        self, observation: Mapping[str, Any], logprobs: Tensor, owner: Tensor, sampling: Sampling, noise: Noise
    ) -> Action:
        """Choose by the log-probs of the strings' tokens.

        Args:
            observation: N collated observations.
            logprobs: [R, L] in nats, of the tokens of all observations' strings in their order; 0 beyond a string.
            owner: [B], the observation of each choice.
            sampling: how a string is drawn.
            noise: of each choice.
        """


def choose_strings(
    policy: ChoosesStrings,
    backend: Backend,
    requests: Sequence[Request],
    sampling: Sampling,
    version: int,
    fail: Callable[[str], None],
) -> list[Completion]:
    """Return one completion per request, whose one choice is the number of a string.

    A string is scored as the end of a prompt. vLLM reads the prompt anew for each string, since it does not take
    prompts from its cache when it reports their log-probs. Where it fails on one string, the completions of that
    context have no choice of the policy and end in an error.

    Args:
        policy: encodes, and chooses.
        backend: holds the weights of the policy's language model.
        requests: of conversations with admissible strings.
        sampling: how a string is drawn.
        version: of the weights that were sent.
        fail: is called with the reason of each completion that ends in an error.
    """
    distinct_requests, owner = distinct(requests)
    read = contexts(distinct_requests, policy)  # type: ignore[arg-type]
    strings = [policy.list_strings(observation) for observation in read]
    prompts = [(*obs["input_ids"].tolist(), *string) for obs, several in zip(read, strings) for string in several]
    outputs = score_prompts(backend, prompts)
    scores = [  # of each string the log-probs of its tokens, which are the prompt's last ones
        torch.tensor(output.prompt_logprobs[-len(string) :]) if output.ended != "error" else torch.zeros(len(string))
        for string, output in zip((string for several in strings for string in several), outputs, strict=True)
    ]
    action = policy.choose(
        policy.collate(read),
        torch.nn.utils.rnn.pad_sequence(scores, batch_first=True),
        torch.tensor(owner),
        sampling,
        Noise([request.seed for request in requests]),
    )
    ends = torch.tensor([len(several) for several in strings]).cumsum(0).tolist()
    by_context = [outputs[first:last] for first, last in zip([0, *ends], ends)]
    completions = []
    for row, (number, request) in enumerate(zip(owner, requests)):
        errors = [output.error for output in by_context[number] if output.ended == "error"]
        if errors:
            fail(errors[0] or "vLLM scored nothing")
        versions = [output.version for output in by_context[number] if output.version is not None]
        done = build_completion(action, row, read[number], sampling, bool(errors))
        completions.append(replace(done, policy_version=min(versions, default=version), prompt_id=context_id(request)))
    return completions


def build_completion(
    action: Action, row: int, observation: Observation, sampling: Sampling, failed: bool
) -> Completion:
    """Build the completion of one row of an action; one that failed has no choice of the policy."""
    temperature = torch.tensor(sampling.temperature)
    return Completion(
        observation=observation,
        action=action.action[row],
        behavior_logprobs=action.behavior_logprobs[row],  # type: ignore[index]
        action_mask=action.action_mask[row] & (not failed),
        output="" if failed else action.output[row],
        ended="error" if failed else "done",
        extra={"temperature": temperature, **{name: column[row] for name, column in action.extra.items()}},
    )


def score_prompts(backend: Backend, prompts: Sequence[tuple[int, ...]]) -> list[EngineOutput]:
    """Let vLLM score each token of these prompts, and check that it read these ids and scored each of them."""
    outputs = []
    for ids, output in zip(prompts, backend.generate([EnginePrompt(ids, (), 0) for ids in prompts], SCORING)):
        if output.ended != "error":
            check_prompt(output.prompt_ids, ids)
            if len(output.prompt_logprobs) != len(ids) - 1:
                error = f"vLLM scored {len(output.prompt_logprobs)} tokens of a prompt of {len(ids)}"
                output = replace(output, ended="error", error=error)
        outputs.append(output)
    return outputs
