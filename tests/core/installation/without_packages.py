"""Run commands without optional packages: `without_packages.py FILE`, a JSON list of [hidden packages, arguments].

Prints a JSON list of [exit status, standard output, standard error]. All commands run in this process, one after the
other, so that the libraries are imported once; a part must not have been imported before its package is hidden.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

from mmrl.__main__ import main
from tests.core.installation.hidden import hide


def run(packages: list[str], arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with hide(packages), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    results = [run(*case) for case in json.loads(Path(sys.argv[1]).read_text())]
    print(json.dumps(results))
