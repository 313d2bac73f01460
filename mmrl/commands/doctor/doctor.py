"""`mmrl doctor`: check this machine, or with the words of a run every one of its processes."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.commands.doctor.machine import examine, print_findings
from mmrl.core.errors import ConfigError


def doctor(arguments: Sequence[str]) -> None:
    """Print the report; raises when something essential is missing."""
    if arguments:
        from mmrl.commands.doctor.run import check_run  # imports what a run needs, which may be missing

        check_run(arguments)
        return
    findings = list(examine())
    print_findings(findings)
    missing = [finding.name for finding in findings if finding.essential and not finding.good]
    if missing:
        raise ConfigError(f"essential things are missing: {', '.join(missing)}")
