"""Checks of the facts of all ranks; each returns one finding, whose text says what to do where something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mmrl.commands.doctor.facts import Facts
from mmrl.commands.doctor.machine import Finding
from mmrl.commands.doctor.meeting import name_ranks


def check_facts(facts: Sequence[Facts]) -> list[Finding]:
    """Check what must be right before the ranks form a process group."""
    checks: tuple[Callable[[Sequence[Facts]], Finding], ...] = (
        *(check_versions, check_source, check_run_dir, check_configuration, check_devices, check_ports),
    )
    return [check(facts) for check in checks]


def check_versions(facts: Sequence[Facts]) -> Finding:
    """Packages have the versions of rank 0."""
    first = facts[0]
    for name in dict.fromkeys(name for each in facts for name in each.versions):
        version = first.versions.get(name, "none")
        if others := [each for each in facts if each.versions.get(name, "none") != version]:
            other = others[0].versions.get(name, "none")
            return _wrong(
                "versions",
                f"{where(others)} has {name} {other}, and rank 0 has {version}; install the same version on every node",
            )
    return _right("versions", ", ".join(f"{name} {version}" for name, version in first.versions.items()))


def check_source(facts: Sequence[Facts]) -> Finding:
    """mmrl's modules are those of rank 0."""
    if others := [each for each in facts if each.source != facts[0].source]:
        return _wrong(
            "source",
            f"{where(others)} runs other modules of mmrl ({others[0].source}) than rank 0 ({facts[0].source}); bring "
            "every node to the same commit",
        )
    return _right("source", f"mmrl's modules {facts[0].source} on all ranks")


def check_run_dir(facts: Sequence[Facts]) -> Finding:
    """The run folder is the same and is seen by all."""
    first = facts[0]
    if others := [each for each in facts if each.run_dir != first.run_dir]:
        return _wrong(
            "run_dir",
            f"{where(others)} would write into {others[0].run_dir}, and rank 0 into {first.run_dir}; give "
            "run_dir=FOLDER, on storage that all nodes share, and start in the same folder on every node",
        )
    if blind := [each for each in facts if not each.sees_run_dir]:
        return _wrong(
            "run_dir",
            f"{where(blind)} does not see what rank 0 writes into {first.run_dir}; give run_dir=FOLDER on storage "
            "that all nodes share",
        )
    return _right("run_dir", f"{first.run_dir}, seen by all ranks")


def check_configuration(facts: Sequence[Facts]) -> Finding:
    """The resolved configuration is that of rank 0."""

    def read(each: Facts) -> list[str]:
        return [line for line in each.config.splitlines() if not line.startswith("project:")]  # where it was started

    first = read(facts[0])
    for other in facts:
        lines = read(other)
        if lines == first:
            continue
        length = max(len(lines), len(first))
        pairs = zip(*(side + [""] * (length - len(side)) for side in (lines, first)))
        ours, theirs = next((a.strip(), b.strip()) for a, b in pairs if a != b)
        return _wrong(
            "configuration",
            f"{where([other])} has {ours!r} where rank 0 has {theirs!r}; give the same words on every node, and keep "
            "conf/ and the files that they name equal",
        )
    return _right("configuration", f"{len(first)} lines, equal on all ranks")


def check_devices(facts: Sequence[Facts]) -> Finding:
    """All ranks have the same kind of device, and each GPU has one rank."""
    kind = facts[0].device.partition(":")[0]
    if others := [each for each in facts if each.device.partition(":")[0] != kind]:
        return _wrong(
            "devices",
            f"{where(others)} has {others[0].device}, and rank 0 {facts[0].device}; let all nodes see GPUs "
            "(CUDA_VISIBLE_DEVICES, the driver), or set trainer.accelerator=cpu",
        )
    owners: dict[tuple[str, str], Facts] = {}
    for each in facts:
        if each.device_id is None:
            continue
        owner = owners.setdefault((each.host, each.device_id), each)
        if owner is not each:
            return _wrong(
                "devices",
                f"{where([each])} has the GPU of rank {owner.rank} ({each.device_id}); every process of a node must "
                f"see all of its GPUs (this one sees {each.devices}): leave CUDA_VISIBLE_DEVICES and Slurm's "
                "--gpus-per-task out, and start as many processes as trainer.devices",
            )
    hosts = {each.host: [other.device for other in facts if other.host == each.host] for each in facts}
    text = "; ".join(f"{host}: {len(devices)} x {kind}" for host, devices in list(hosts.items())[:8])
    rest = f"; and {len(hosts) - 8} other hosts" if len(hosts) > 8 else ""
    return _right("devices", text + rest)


def check_ports(facts: Sequence[Facts]) -> Finding:
    """Ports of servers are free."""
    if others := [each for each in facts if each.port_problem]:
        return _wrong(
            "ports",
            f"{where(others)}: {others[0].port_problem}; end the process that listens there, or set engine.port to a "
            "free port",
        )
    return _right("ports", "free")


def check_shard_groups(facts: Sequence[Facts], copies: int, size: int) -> Finding:
    """Say how the weights are divided; a copy that spans hosts is possible, and slow."""
    if size == 1:
        return _right("mesh", f"{copies} copies of the weights")
    groups = [facts[start : start + size] for start in range(0, len(facts), size)]
    text = f"{copies} cop{'ies' if copies > 1 else 'y'} of the weights, sharded over {size} ranks"
    if any(len({each.host for each in group}) > 1 for group in groups):
        local = sum(each.host == facts[0].host for each in facts)
        text += f"; copies span hosts: strategy.shard_size={local} gathers within a host"
    return _right("mesh", text)


def where(ranks: Sequence[Facts]) -> str:
    """Name ranks and the host of the first."""
    return f"{name_ranks([each.rank for each in ranks])} on {ranks[0].host}"


def _right(name: str, text: str) -> Finding:
    return Finding(name, text, essential=True)


def _wrong(name: str, text: str) -> Finding:
    return Finding(name, text, good=False, essential=True)
