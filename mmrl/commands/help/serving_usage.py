"""Usages of `mmrl serve` and `mmrl robot`."""

SERVE = """mmrl serve: answer with a run's actions (websockets) or chat completions (HTTP, OpenAI's form)

  mmrl serve RUN_FOLDER [OPTION=VALUE ...]
  mmrl serve REWARD_MODEL [OPTION=VALUE ...]

A client sends observations, a msgpack map with numpy arrays, and receives {"actions": [H, A]}. openpi's client can ask
it, and policy=remote evaluates it in a simulator. GET /healthz answers 200. Needs pip install 'mmrl-lightning[serve]'.
A text policy answers POST /v1/chat/completions, as OpenAI's clients send it, under the model name `policy`; its key is
the token.
A reward model, which is the run of a sequence classifier or its folder, is served over HTTP for reward=server, with the
options host, port, token_file and device.

Options:
  host=127.0.0.1       address to listen at; one that other machines can reach needs a token
  port=8000            0 takes a free one
  token_file=FILE      token that clients must send; default: the environment variable MMRL_SERVE_TOKEN, if it is set
  checkpoint=last      last, start or a file
  decode=mean          of clients that name none: sample, argmax, mean or a decode of the run's evaluation, whose first
                       one is the default
  seed=0               of the draws of clients that send no seeds
  device=cpu           of the weights, as torch names it
  max_batch=32         most observations or completions of one call of the policy, over all clients
  trust=true           also load pickled objects of a checkpoint and code of other folders: whoever wrote it can run any

Examples:
  mmrl serve runs/demo
  mmrl serve runs/mine port=8002
  mmrl serve runs/rm port=8001
  mmrl evaluate recipe=demo_vla policy=remote policy.url=ws://127.0.0.1:8000 count=64
"""

ROBOT = """mmrl robot: play a run's policy on a robot in real time, take over by hand, and record the episodes

  mmrl robot RUN_FOLDER [OPTION=VALUE ...]                     in the simulator of the run
  mmrl robot RUN_FOLDER robot=FILE.py:CLASS [OPTION=VALUE ...] on a robot: a subclass of mmrl.api.robots.robot.Robot
  mmrl robot url=ws://HOST:PORT robot=FILE.py:CLASS ...        the policy is at a server of `mmrl serve`

One command is given per control step. The next chunk of actions is computed while the present one is played; actions
whose control steps are past when it comes are dropped. Ctrl-C ends the episode and writes what is recorded.

Options:
  robot=FILE.py:CLASS  class of the robot, or package.module:CLASS; without it, the simulator of the run in real time
  url=ws://HOST:PORT   policy server; token_file=FILE or the environment variable MMRL_SERVE_TOKEN has its token
  checkpoint=last      last, start or a file
  decode=mean          sample, argmax, mean or a decode of the run's evaluation, whose first one is the default
  seed=0               of the policy's draws on a robot; a simulated episode has the seed of its initial state
  device=cpu           of the weights, as torch names it
  num_episodes=1       episodes
  max_steps=1000       most control steps of an episode
  split=held_out       initial states of a simulator: train or held_out; offset=0 is the first one
  fps=20               control steps per second; default: those of the robot
  execute=3            least control steps from one chunk's observation to the next one's; default: half the chunk
  blend=0              control steps over which a new chunk is averaged with the one before it
  guide=true           a flow policy begins a chunk as the present one goes on (real-time chunking); limit=5 bounds it
  latency_ms=0         added to the time of each inference
  clock=system         simulated: time passes by sleeping alone, so that an inference takes latency_ms exactly
  takeover=FILE.py:FN  called with each observation; its action is played in place of the policy's unless it is None.
                       takeover=expert: the simulator's expert, where no step of the last patience=10 came nearer, for
                       duration=5 steps
  out=FOLDER           write a LeRobotDataset v3.0 with the column `intervention`; video=false: PNG instead of H.264
  trust=true           also load pickled objects of a checkpoint and code of other folders: whoever wrote it can run any

Examples:
  mmrl robot runs/mine num_episodes=5
  mmrl robot runs/mine latency_ms=150 takeover=expert out=data/mine
  mmrl robot runs/mine robot=arm.py:Arm fps=30 blend=4
"""
