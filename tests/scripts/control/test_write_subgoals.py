"""A language model behind a server writes the subgoals of levels, and training reads its file."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("minigrid")

from sims.subgoals import SubgoalSim
from sims.subgoals.plans import FilePlans, find_plan
from sims.subgoals.writing import describe_grid, read_subgoals
from sims.task import SimTask

ID = "MiniGrid-DoorKey-5x5-v0"
ROOT = Path(__file__).parents[3]


def reset_grid(seed=2):
    grid = SubgoalSim(ID, hidden=1.0).make_env().unwrapped
    grid.reset(seed=seed)
    return grid


class Server:
    """A server whose model reads the question: it names the key's and the door's field, or what `spoil` makes of it."""

    def __init__(self, spoil=lambda number, answer: answer):
        self.questions, outer = [], self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.questions.append(body["messages"][0]["content"])
                objects = outer.questions[-1].split("Objects: ")[1].split(".\n")[0].split("; ")
                places = {text.split(" at ")[0].split()[-1]: text.split(" at ")[1].split(" (")[0] for text in objects}
                answer = f"First the key.\n[{places['key']}, {places['door']}, {places['goal']}]"
                content = spoil(len(outer.questions), answer)
                reply = json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def ask(url, out, *words):
    command = (sys.executable, "scripts/control/write_subgoals.py", f"--id={ID}", f"--url={url}", "--model=m")
    return subprocess.run((*command, f"--out={out}", *words), cwd=ROOT, text=True, capture_output=True, timeout=120)


def test_a_server_writes_the_file_and_is_asked_once_a_level(tmp_path):
    out = tmp_path / "subgoals.jsonl"

    def spoil(number, answer):
        return {2: "I would open the door.", 3: "[[1, 1], [9, 1]]"}.get(number, answer)

    with Server(spoil) as server:
        first = ask(server.url, out, "--count=4")
        assert first.returncode == 0, first.stderr
        assert first.stdout.strip().endswith("4 levels, 2 as scripted, 2 unreadable")
        second = ask(server.url, out, "--count=5")
        assert second.stdout.strip().endswith("5 levels, 3 as scripted, 0 unreadable")
        assert len(server.questions) == 5
    task = SimTask(SubgoalSim(ID, plans=str(out), hidden=0.0), 5)
    rows = FilePlans(str(out)).rows
    assert list(rows) == [task[i].info["seed"] for i in range(5)]
    env = task.sim.make_env()
    for index, (seed, plan) in enumerate(rows.items()):
        env.reset(seed=seed)
        assert env.get_wrapper_attr("plan") == plan == ([] if index in (1, 2) else find_plan(env.unwrapped))


def test_a_server_that_is_away_is_named(tmp_path):
    result = ask("localhost", tmp_path / "none.jsonl")
    assert result.returncode == 1 and "http://HOST:PORT/v1" in result.stderr and "Traceback" not in result.stderr


def test_the_question_says_what_the_grid_has():
    grid = reset_grid()
    (kx, ky), (dx, dy), (gx, gy) = find_plan(grid)
    text = describe_grid(grid)
    for part in (
        "5 columns and 5 rows",
        f"yellow key at [{kx}, {ky}]",
        f"yellow door at [{dx}, {dy}] (locked)",
        f"goal at [{gx}, {gy}]",
        f"stands at [{grid.agent_pos[0]}, {grid.agent_pos[1]}]",
        "use the key to open the door and then get to the goal",
    ):
        assert part in text
    walls = text.split("Further walls: ")[1].split(".\n")[0]
    # DoorKey's grid is parted by one wall of three fields, one of which is the door
    assert walls == ", ".join(f"[{dx}, {y}]" for y in (1, 2, 3) if y != dy)


@pytest.mark.parametrize(
    ("answer", "plan"),
    [
        ("[[1, 2], [3, 2]]", [(1, 2), (3, 2)]),
        ("The key [1, 2]:\n```json\n[\n [1,2],\n [3, 2]\n]\n```", [(1, 2), (3, 2)]),
        ("[[1, 1]] or rather [[2, 2]]", [(2, 2)]),
        ("[]", []),
        ("no list: [1, 2]", None),
        ("[[1, 2], [3, 9]]", None),
        ("[[1, 2], [-3, 2]]", None),
        ("[[1, 2],", None),
        ("[" * 5000 + "[1,2]," * 5000, None),
    ],
)
def test_lists_in_answers(answer, plan):
    assert read_subgoals(answer, reset_grid()) == plan
