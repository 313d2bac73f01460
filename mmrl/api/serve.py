"""`mmrl serve`: a run's actions over websockets, a text policy's completions or a reward model's scores over HTTP."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from mmrl.api.loaded_policy import load_policy
from mmrl.api.serving.chat import TextPolicyServer, find_parser
from mmrl.api.serving.scores import ENDING_S, ScoreServer, find_classifier
from mmrl.api.serving.server import PolicyServer
from mmrl.commands.options import SERVE_OPTIONS as OPTIONS
from mmrl.commands.options import parse_count, parse_switch, split_options
from mmrl.core.errors import ConfigError
from mmrl.core.installation.optional_packages import require_packages
from mmrl.files.contract import read_contract
from mmrl.policies.remote.token import TOKEN, read_token
from mmrl.policies.remote.wire import PACKAGES
from mmrl.rewards.models.learned import ClassifierReward


@dataclass(frozen=True)
class ServeRequest:
    """What the command line asks for.

    Args:
        run: folder.
        host: address to listen at; one that other machines reach needs a token.
        port: 0 takes a free one.
        token: that clients must send.
        checkpoint: last, start or a file.
        decode: of requests that name none; None for the first one of the run's evaluation.
        seed: of the draws of requests that name none.
        device: of the weights.
        max_batch: most requests of one call of the policy.
        trust: whether pickled objects in a checkpoint may be loaded.
    """

    run: str
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    checkpoint: str = "last"
    decode: str | None = None
    seed: int = 0
    device: str = "cpu"
    max_batch: int = 32
    trust: bool = False


def parse(arguments: Sequence[str]) -> ServeRequest:
    """Parse what follows `mmrl serve`: a run folder, then key=value."""
    options, places = split_options(arguments, OPTIONS)
    if len(places) != 1 or places[0].startswith("-"):
        raise ConfigError(f"give one run folder, got {places}; options are {', '.join(f'{name}=' for name in OPTIONS)}")
    port = parse_count(options, "port", 8000, 0)
    if port > 65535:
        raise ConfigError(f"port={port}: must be at most 65535")
    host, token = options.get("host", "127.0.0.1"), read_token(options.get("token_file"), "token_file")
    if token is None and not _is_loopback(host):
        raise ConfigError(
            f"host={host}: other machines can reach this address, so a token is needed; give token_file=FILE or the "
            f"environment variable {TOKEN}"
        )
    return ServeRequest(
        run=places[0],
        host=host,
        port=port,
        token=token,
        checkpoint=options.get("checkpoint", "last"),
        decode=options.get("decode"),
        seed=parse_count(options, "seed", 0, 0),
        device=options.get("device", "cpu"),
        max_batch=parse_count(options, "max_batch", 32, 1),
        trust=parse_switch(options, "trust", False),
    )


def serve(arguments: Sequence[str]) -> None:
    """Serve a run's policy, or a reward model, until Ctrl-C or SIGTERM."""
    request = parse(arguments)
    classifier = find_classifier(request.run)
    server = _build_policy_server(request) if classifier is None else _build_score_server(request, str(classifier))
    try:
        asyncio.run(_serve(server, request))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        raise ConfigError(f"host={request.host} port={request.port}: {error.strerror}; choose another port=") from error
    _end_calls(server, request.run)


def _end_calls(server: PolicyServer | TextPolicyServer | ScoreServer, run: str) -> None:
    """End the process where a call of the model goes on: Python would wait for its thread, however long it takes."""
    deadline = time.monotonic() + ENDING_S
    while server.busy and time.monotonic() < deadline:
        time.sleep(0.05)
    if server.busy:
        _report(f"{run}: a call of the model does not end within {ENDING_S:g} s; the server ends without its answer")
        sys.stdout.flush()
        os._exit(0)


def _build_score_server(request: ServeRequest, classifier: str) -> ScoreServer:
    model = ClassifierReward(classifier, request.device, batch_size=64)
    model.load()
    return ScoreServer(model, request.token)


def _build_policy_server(request: ServeRequest) -> PolicyServer | TextPolicyServer:
    loaded = load_policy(
        request.run, request.checkpoint, request.decode, request.seed, request.device, trust=request.trust
    )
    if not loaded.acts:
        config = yaml.safe_load((loaded.run.folder / "config.yaml").read_text())
        return TextPolicyServer(
            loaded.policy, loaded.sampling, request.seed, request.token, request.max_batch, find_parser(config)
        )
    require_packages(PACKAGES, "mmrl serve")
    contract = read_contract(request.run)
    return PolicyServer(
        loaded.policy, loaded.sampling, request.seed, contract, request.token, request.max_batch, _report
    )


async def _serve(server: PolicyServer | TextPolicyServer | ScoreServer, request: ServeRequest) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    address = f"[{request.host}]" if ":" in request.host else request.host

    def announce(port: int) -> None:
        token = "with a token" if request.token else "without a token"
        scheme = "ws" if isinstance(server, PolicyServer) else "http"
        path = "/v1" if isinstance(server, TextPolicyServer) else ""
        print(f"{request.run}: serving at {scheme}://{address}:{port}{path} {token}; Ctrl-C ends it", flush=True)

    await server.serve(request.host, request.port, announce, stop)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
