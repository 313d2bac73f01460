"""Programs that reach for other processes, sockets, the terminal and more resources than they may use."""

from tests.tools.hostile import Hostile

DONE = "\nprint('ESCAPED')"


def _tries(name: str, source: str, control: bool = True, ends: tuple[str, ...] = ("raised",)) -> Hostile:
    return Hostile(name, source + DONE, ends, control)


SOCKETS = [
    _tries("socket: TCP of this machine", "import socket; socket.create_connection(('127.0.0.1', @port@), 1)"),
    _tries("socket: TCP server", "import socket; socket.create_server(('127.0.0.1', 0))"),
    _tries("socket: UDP", "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', @port@))"),
    _tries("socket: Unix", "import socket; socket.socket(socket.AF_UNIX).connect('@socket@')"),
    _tries("socket: abstract Unix", "import socket; socket.socket(socket.AF_UNIX).bind('\\0mmrl-planted')"),
    _tries("socket: a pair", "import socket; socket.socketpair()"),
    _tries("socket: a file in the scratch folder", "import socket; socket.socket(socket.AF_UNIX).bind('s')"),
    _tries("socket: raw", "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    _tries("socket: names of machines", "import socket; socket.getaddrinfo('localhost.example', 80)", False),
    _tries("socket: urllib", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:@port@')", False),
    _tries("socket: asyncio", "import asyncio; asyncio.run(asyncio.sleep(0))"),
]

PROCESSES = [
    _tries("process: fork", "os.fork() or os._exit(0)"),
    _tries("process: forkpty", "os.forkpty()[0] or os._exit(0)"),
    _tries("process: vfork of the C library", "if libc.fork() < 0: raise OSError", False),
    _tries("process: spawn", "os.posix_spawn('/bin/true', ['true'], {})"),
    _tries("process: subprocess", "import subprocess; subprocess.run(['/bin/true'])"),
    _tries("process: system", "if os.system('true') != 0: raise OSError"),
    _tries("process: popen", "os.popen('true').read()"),
    _tries("process: exec", "os.execv('/bin/echo', ['echo', 'ESCAPED'])"),
    _tries("process: exec of the interpreter", "os.execv(sys.executable, ['python', '-c', 'print(\"ESCAPED\")'])"),
    _tries(
        "process: exec of a file of its own",
        "f = os.open('f', 0o102, 0o700); os.write(f, b'#!/bin/echo ESCAPED'); os.close(f); os.execv('./f', ['f'])",
    ),
    _tries(
        "process: multiprocessing",
        "import multiprocessing as m; p = m.Process(target=print); p.start(); p.join()",
        False,
    ),
    _tries(
        "process: a pool", "from concurrent.futures import ProcessPoolExecutor as P; P(1).submit(print).result()", False
    ),
    _tries("process: a lock of several", "import multiprocessing as m; m.Lock()"),
    _tries(
        "process: shared memory of several",
        "from multiprocessing.shared_memory import SharedMemory as S; S(create=True, size=9)",
        False,
    ),
    _tries("process: a terminal of its own", "import pty; pty.spawn(['/bin/true'])"),
    Hostile(
        "process: fork by the calls of 32 bits",
        "import mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes.fromhex('b802000000cd80c3'))\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(m))\nif os.uname().machine != 'x86_64': os.abort()\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(at)()" + DONE,
        ("killed",),
    ),
]

SIGNALS = [
    _tries("signal: kill", "os.kill(@decoy@, 0)"),
    _tries("signal: kill its parent", "os.kill(os.getppid(), 0)"),
    _tries("signal: kill the group", "os.killpg(0, 0)"),
    _tries("signal: kill all", "os.kill(-1, 0)"),
    _tries("signal: pidfd", "import signal; signal.pidfd_send_signal(os.pidfd_open(@decoy@), 0)"),
    _tries("signal: the owner of a pipe", "import fcntl; fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, @decoy@)"),
    _tries(
        "signal: the owner of a pipe, by type",
        "import fcntl; fcntl.fcntl(os.pipe()[0], 15, bytes(4) + (@decoy@).to_bytes(4, 'little'))",
    ),
    _tries("signal: the signal of a pipe", "import fcntl; fcntl.fcntl(os.pipe()[0], fcntl.F_SETSIG, 9)"),
    _tries(
        "signal: the owner of a pipe, by ioctl",
        "import fcntl; fcntl.ioctl(os.pipe()[0], 0x8901, (@decoy@).to_bytes(4, 'little'))",
        False,
    ),
    _tries("signal: the group of a terminal", "os.tcsetpgrp(1, @decoy@)", False),
]

TERMINAL = [
    _tries(
        "terminal: type into it",
        "import fcntl, termios; fcntl.ioctl(os.open('/dev/tty', os.O_RDONLY), termios.TIOCSTI, b'x')",
        False,
    ),
    _tries(
        "terminal: type into one by its name",
        "import fcntl, termios; fcntl.ioctl(os.open('@terminal@', 0o400), termios.TIOCSTI, b'x')",
        False,
    ),
    _tries(
        "terminal: type into what is open",
        "import fcntl, termios\nfor end in range(32):\n"
        "    try: fcntl.ioctl(end, termios.TIOCSTI, b'x')\n    except OSError as error: last = error\n"
        "    else: print('ESCAPED')\nraise last",
        False,
    ),
    _tries("terminal: write to it", "open('@terminal@', 'w').write('x')"),
    _tries(
        "terminal: take it",
        "import fcntl, termios; fcntl.ioctl(os.open('@terminal@', 0o400), termios.TIOCSCTTY, 1)",
        False,
    ),
    _tries("terminal: open one", "os.openpty()"),
    _tries("terminal: a session", "os.setsid()", False),
    _tries("terminal: paste", "import fcntl; fcntl.ioctl(0, 0x541C, b'\\x03')", False),
]

RESOURCES = [
    Hostile("resource: memory", "x = bytearray(1 << 30)" + DONE, ("out_of_memory",), True),
    Hostile("resource: memory in pieces", "x = []\nwhile True: x.append(bytearray(1 << 20))", ("out_of_memory",)),
    Hostile("resource: memory in small pieces", "x = []\nwhile True: x.append(object())", ("out_of_memory",)),
    Hostile(
        "resource: memory of a map", "import mmap; mmap.mmap(-1, 1 << 30)" + DONE, ("raised", "out_of_memory"), True
    ),
    Hostile(
        "resource: a shared map",
        "import mmap; mmap.mmap(-1, 1 << 30, flags=mmap.MAP_SHARED)" + DONE,
        ("raised", "out_of_memory"),
        True,
    ),
    Hostile("resource: a number", "10 ** 10 ** 10", ("timed_out", "out_of_memory")),
    Hostile(
        "resource: threads",
        "import threading\nthreading.stack_size(1 << 16)\n"
        "while True: threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        ("raised", "timed_out"),  # at the limit of memory, or of computing where threads are begun slowly
    ),
    Hostile("resource: open files", "x = []\nwhile True: x.append(os.open('.', 0))"),
    Hostile("resource: pipes", "x = []\nwhile True: x.append(os.pipe())"),
    Hostile("resource: computing", "while True: pass", ("timed_out",)),
    Hostile(
        "resource: computing in threads",
        "import threading\nfor _ in range(4): threading.Thread(target=exec, args=('while True: pass',)).start()",
        ("timed_out",),
    ),
    Hostile("resource: computing without a switch", "sum(range(1 << 62))", ("timed_out",)),
    Hostile("resource: a regular expression", "import re; re.match('(a+)+$', 'a' * 40 + 'b')", ("timed_out",)),
    Hostile("resource: sleep", "time.sleep(60)", ("timed_out",)),
    Hostile(
        "resource: sleep in a thread",
        "import threading; threading.Thread(target=time.sleep, args=(60,)).start()",
        ("timed_out",),
    ),
    Hostile(
        "resource: sleep at the end", "import threading; threading._register_atexit(time.sleep, 60)", ("timed_out",)
    ),
    Hostile("resource: stopped", "import signal; signal.raise_signal(signal.SIGSTOP)", ("timed_out",)),
    Hostile("resource: waits for itself", "os.read(os.pipe()[0], 1)", ("timed_out",)),
    Hostile(
        "resource: deaf to signals",
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass",
        ("timed_out",),
    ),
    Hostile(
        "resource: alarms",
        "import signal\nsignal.signal(14, lambda *_: None); signal.setitimer(0, 1e-4, 1e-4)\nwhile True: time.sleep(1)",
        ("timed_out",),
    ),
    Hostile("resource: prints", "while True: print('x' * 1000)", ("too_long",)),
    Hostile("resource: prints errors", "while True: sys.stderr.write('x' * 1000)", ("too_long",)),
    Hostile("resource: prints at once", "os.write(1, b'x' * (1 << 20))", ("too_long",)),
    Hostile(
        "resource: more memory",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 34, 1 << 34))" + DONE,
        control=True,
    ),
    Hostile(
        "resource: more time", "import resource; resource.setrlimit(resource.RLIMIT_CPU, (99, 99))" + DONE, control=True
    ),
    Hostile(
        "resource: a full stack",
        "def f(): f()\nsys.setrecursionlimit(1 << 30)\nf()",
        ("killed", "out_of_memory", "raised", "timed_out"),
    ),
    Hostile("resource: brackets for the compiler", "compile('(' * 100_000, 'x', 'eval')"),
    Hostile(
        "resource: minus signs for the compiler",
        "compile('-' * 100_000 + '1', 'x', 'eval')",
        ("raised", "out_of_memory", "killed"),
    ),
    Hostile("resource: a crash", "ctypes.string_at(0)", ("killed",)),
    Hostile("resource: an abort", "os.abort()", ("killed",)),
    Hostile("resource: its own end", "os.kill(os.getpid(), 9)", ("killed",)),
]

PROGRAMS = [*SOCKETS, *PROCESSES, *SIGNALS, *TERMINAL, *RESOURCES]
