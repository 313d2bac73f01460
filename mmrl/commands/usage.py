"""Help texts of the commands; `mmrl fit --help` is the parser's own."""

from __future__ import annotations

USAGES = {
    "evaluate": """mmrl evaluate: held-out success of a run's checkpoints, with intervals

  mmrl evaluate RUN_FOLDER|FILE.ckpt                         the last checkpoint, or this one
      checkpoint=last|start|FILE                             of a run's folder
      compare=start|FILE|RUN_FOLDER    before it, on the same problems and draws: a paired test
      count=512        held-out problems; as the run's configuration says by default
      num_samples=8    per problem: pass@k
      decode=argmax    a decode of the configuration, or sample, argmax, mean; all that are configured by default
      video=true       of the first video_episodes=6 held-out initial states of a simulator
      accept=ENTRY     of the simulator's contract that may differ from the training's, as suite.renderer
      trust=true       also load pickled objects from a checkpoint: whoever wrote it can run any code here
      sim.KEY=VALUE engine.KEY=VALUE ...                     changes the run's configuration, as for mmrl fit

Written into the run's folder: report.html, evaluation.json, protocol.json, episodes.jsonl, videos/.
""",
    "data": """mmrl data: episodes of robots, recorded control step by control step

  mmrl data record sim=reach num_episodes=50 out=FOLDER      the simulator's scripted expert
  mmrl data record run=RUN_FOLDER num_episodes=50 out=FOLDER a trained policy, in the simulator of its run
      checkpoint=last|start|FILE  decode=sample|argmax|mean  of a policy
      noise=0.3        std of the noise added to the expert's actions, in actions
      video=false      PNG inside the tables, exact, instead of H.264
      offset=0         index of the first initial state of split=train|held_out
      sim.KEY=VALUE task.KEY=VALUE policy.KEY=VALUE ...      as for mmrl fit
  mmrl data inspect FOLDER|FILE.hdf5                         schema, counts, statistics, contact sheet
      out=FOLDER       where contact_sheet.png goes
      write=true       compute meta/stats.json again from the data

Written: LeRobotDataset v3.0. Read: LeRobotDataset v3.0, Minari HDF5, robomimic HDF5.
To learn from one: mmrl fit recipe=bc sim=reach rollout=offline rollout.path=FOLDER curriculum=shuffled
""",
    "list": """mmrl list: what there is, with a line about each

  mmrl list                the groups
  mmrl list recipes        one of them: recipes, policies, tasks, sims, engines, objectives, annotators, ...
""",
    "doctor": """mmrl doctor: versions, devices and renderers of this machine, and what is wrong with them

  mmrl doctor              takes no arguments
""",
}
