"""Import once what programs import, then fork a process for each: `server.py SOCKET PROGRAM`.

A second process stands between the server and each program: it passes the client's signals on, kills the program and
its process group when the client is gone, and sends the exit status.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import types

LIBRARIES = (
    *("torch.distributed.checkpoint.state_dict", "torch.distributed.run", "torch.utils.tensorboard", "torchvision"),
    *("lightning.pytorch.cli", "jsonargparse", "hydra", "omegaconf", "peft", "timm", "accelerate"),
    *("transformers.models.auto.modeling_auto", "transformers.models.qwen2.modeling_qwen2"),
    *("transformers.integrations.flex_attention", "transformers.conversion_mapping"),
    *("matplotlib.pyplot", "gymnasium", "mujoco", "imageio", "skimage", "pytest"),
)


def prepare() -> None:
    """Import the libraries, and compute what they compute once in every process."""
    gc.disable()  # nothing of the libraries is garbage
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    with contextlib.suppress(ImportError, AttributeError):  # a table of all models, in some versions
        importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("qwen2")
    gc.freeze()  # a collection in a forked process would copy the memory of all of them
    gc.enable()


def serve(place: str, program: str) -> None:
    """Prepare and answer until the standard input ends."""
    prepare()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place)
    listening.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(1, b"ready\n")
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            return
        client, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            attend(client, program)
        client.close()


def attend(client: socket.socket, program: str) -> None:
    """Fork the program that the client asks for, and attend to both until it ends."""
    head, streams, _, _ = socket.recv_fds(client, 8, 3)
    length, text = int.from_bytes(head, "little"), b""
    while len(text) < length:
        text += client.recv(length - len(text))
    request = json.loads(text)
    process = os.fork()
    if process == 0:
        client.close()
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os._exit(execute(request, program))
    for stream in (0, 1, 2, *streams):
        os.close(stream)
    ended = os.pidfd_open(process)
    while True:
        ready, _, _ = select.select([client, ended], [], [])
        if ended in ready:
            _, status = os.waitpid(process, 0)
            with contextlib.suppress(OSError):
                client.sendall(status.to_bytes(8, "little"))
            os._exit(0)
        signals = client.recv(64)
        for number in signals:
            os.kill(process, number)
        if not signals:
            os.killpg(process, signal.SIGKILL)
            os._exit(0)


def execute(request: dict, program: str) -> int:
    """Do what `python` does with these arguments, and return its exit status."""
    os.sched_setaffinity(0, request["cores"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.executable = program  # so that processes which the program starts are quick, too
    (first, *rest), main = request["arguments"], types.ModuleType("__main__")
    here = os.getcwd() if first == "-m" else os.path.dirname(os.path.realpath(first))
    further = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [*([] if request["safe"] else [here]), *map(os.path.abspath, further)]
    importlib.invalidate_caches()
    sys.modules["__main__"] = main
    try:
        if first == "-m":
            sys.argv = ["-m", *rest[1:]]
            runpy._run_module_as_main(rest[0])
        else:
            sys.argv = [first, *rest]
            main.__file__ = first
            with open(first, "rb") as file:
                exec(compile(file.read(), first, "exec"), main.__dict__)
        status = 0
    except BaseException as error:
        status = end(error)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return status


def end(error: BaseException) -> int:
    """Report an exception as the interpreter does; the exit status."""
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    serve(*sys.argv[1:])
