"""Ask the server for a program and wait for its end: `client.py SOCKET PYTHON ARGUMENTS...`, standard library only.

The client forwards signals to the program, ends with its exit status, and takes it along where it is killed.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    place, python, *arguments = sys.argv[1:]
    rest = [word for word in arguments if word not in ("-P", "-u")]
    if not rest or (rest[0].startswith("-") and rest[0] != "-m"):
        os.execv(python, [python, *arguments])
    request = {
        "arguments": rest,
        "safe": "-P" in arguments[: len(arguments) - len(rest)] or bool(os.environ.get("PYTHONSAFEPATH")),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "cores": sorted(os.sched_getaffinity(0)),
    }
    server = socket.socket(socket.AF_UNIX)
    server.connect(place)
    text = json.dumps(request).encode()
    socket.send_fds(server, [len(text).to_bytes(8, "little")], [0, 1, 2])
    server.sendall(text)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: server.sendall(bytes([number])))
    answer = server.recv(8)
    if not answer:
        sys.exit("quick_python: the server ended")
    status = int.from_bytes(answer, "little")
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


main()
