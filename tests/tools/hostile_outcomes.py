"""Programs that lie about how they ended, or try to stop whoever runs them. They share an interpreter with the code
that runs them, so they look for its pipes, frames and functions."""

from tests.tools.hostile import Hostile

ALL_ENDS = """
import select
def flood(word):
    for end in range(3, 64):
        try: os.set_blocking(end, False); os.write(end, word)
        except OSError: pass
"""


def _lies(name: str, source: str, *ends: str) -> Hostile:
    return Hostile(f"outcome: {name}", ALL_ENDS + source, ends or ("raised",))


PROGRAMS = [
    _lies("says ok and raises", "flood(b'ok:'); 1 / 0"),
    _lies("says ok in the words of the supervisor", "flood(b'1[]'); 1 / 0"),
    _lies("says that programs cannot be confined", "flood(b'confine:x'); 1 / 0"),
    _lies("says so in the words of the supervisor", "flood(b'0Landlock'); 1 / 0"),
    _lies(
        "sends a reply of its own",
        'flood((64).to_bytes(8, \'little\') + b\'{"outcome": "ok", "output": "", "reason": ""}\'); 1 / 0',
    ),
    _lies("sends the length of a reply", "flood(b'\\xff' * 8); 1 / 0"),
    _lies("sends a word that nobody knows", "flood(b'wonderful'); 1 / 0"),
    _lies("sends bytes that are no text", "flood(b'\\xff\\x1b[2J\\0'); 1 / 0"),
    _lies(
        "writes through the frames of its runner",
        "frame = sys._getframe()\nwhile frame:\n    for v in frame.f_locals.values():\n"
        "        for end in v.values() if isinstance(v, dict) else [v]:\n"
        "            if type(end) is int:\n                try: os.write(end, b'ok:')\n"
        "                except (OSError, OverflowError): pass\n    frame = frame.f_back\n1 / 0",
    ),
    _lies(
        "changes the variables of its runner",
        "frame = sys._getframe(1)\nframe.f_locals.update(status=0, said='')\n"
        "ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), 0)\n1 / 0",
    ),
    _lies(
        "says that the memory was too small", "flood(b'MemoryError'); raise SystemExit(3)", "raised", "out_of_memory"
    ),
    _lies(
        "floods the reason",
        "os.set_blocking(1, False)\nfor end in range(3, 64):\n    try:\n"
        "        while True: os.write(end, b'x' * 65536)\n    except OSError: pass",
        "timed_out",
    ),
    _lies(
        "calls its runner again",
        "import gc\nfor thing in gc.get_objects():\n"
        "    if getattr(thing, '__name__', '') in ('write_message', 'run_program', 'supervise', 'run'):\n"
        "        try: thing(1, b'x')\n        except Exception: pass\n1 / 0",
    ),
    _lies(
        "writes into the supervisor's module",
        "for m in list(sys.modules.values()):\n"
        "    if (getattr(m, '__name__', '') or '').startswith('mmrl'):\n        m.__dict__.clear()\n"
        "1 / 0",
    ),
    _lies("hides its exception", "sys.excepthook = lambda *_: os._exit(0)\n1 / 0"),
    _lies(
        "raises an exception that cannot be told",
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
    ),
    _lies(
        "raises an exception without an end",
        "class E(Exception):\n    def __str__(self): return 'x' * (1 << 24)\nraise E",
    ),
    _lies(
        "raises an exception that waits",
        "class E(Exception):\n    def __str__(self): time.sleep(60)\nraise E",
        "timed_out",
    ),
    _lies("raises an exception named ok", "raise type('ok', (BaseException,), {})"),
    _lies("raises an exception with a terminal's words", "raise Exception('\\x1b]0;x\\x07\\x1b[2J')"),
    _lies("raises an exception that is no text", "raise Exception('\\udcff' * 9)"),
    _lies("exits with a word", "sys.exit('ok')"),
    _lies("exits with a number", "os._exit(3)"),
    _lies("exits with the largest number", "os._exit(255)"),
    _lies(
        "exits in a thread", "import threading; threading.Thread(target=os._exit, args=(1,)).start(); time.sleep(60)"
    ),
    _lies("takes its output away", "sys.stdout = None; raise OSError"),
    _lies("closes its output", "sys.stdout.close(); raise OSError"),
    _lies("puts an object in place of its output", "class O:\n    def flush(self): raise ValueError\nsys.stdout = O()"),
    _lies("closes everything and goes on", "os.closerange(0, 64); time.sleep(60)", "timed_out"),
    _lies("closes everything and computes", "os.closerange(0, 64)\nwhile True: pass", "timed_out"),
    _lies("closes everything and raises", "os.closerange(0, 64); raise OSError"),
    _lies("prints what is no text", "os.write(1, b'\\xff\\xfe')", "not_text"),
    _lies("prints half a letter", "os.write(1, 'ä'.encode()[:1])", "not_text"),
    _lies("prints a reply", 'print(\'{"outcome": "ok"}\'); raise OSError'),
    _lies("takes the time limit's signal", "import signal; signal.raise_signal(signal.SIGXCPU)", "killed"),
    _lies("reads what the next program is", "print(os.read(0, 9)); raise OSError"),
    _lies("replaces what imports", "sys.meta_path.clear(); sys.path.clear(); sys.modules.clear(); 1 / 0"),
    _lies(
        "replaces the builtins",
        "import builtins\nbuiltins.__dict__.pop('BaseException'); builtins.__dict__.pop('MemoryError')\n1 / 0",
    ),
    _lies("leaves a function for the end", "import atexit; atexit.register(os._exit, 0); raise OSError"),
    _lies(
        "traces its runner", "def t(*_): raise ValueError\nsys.settrace(t); sys._getframe(1).f_trace = t\nraise OSError"
    ),
    _lies(
        "fills the memory before it raises",
        "x = []\ntry:\n    while True: x.append(bytes(999))\nexcept MemoryError:\n    raise OSError",
        "raised",
        "out_of_memory",
    ),
]
