"""`mmrl --help`: the commands by the job that they are for, and one screen about each job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """Something that people use mmrl for.

    Args:
        purpose: what the job is, in half a line.
        commands: (command with its usual arguments, what it does), a line each.
        steps: the rest of the job's screen: how the commands are used, with examples.
    """

    purpose: str
    commands: tuple[tuple[str, str], ...]
    steps: str


JOBS = {
    "train": Job(
        "a policy, with a recipe or a part of your own",
        (
            ("fit recipe=NAME", "train a policy"),
            ("rounds NAME", "sample, filter, fit and evaluate in rounds"),
            ("new KIND NAME", "write a part of your own, with its test"),
            ("data record sim=NAME", "record episodes of a robot, or inspect them"),
        ),
        """A recipe is a method, which is what a paper says, in a setting: task, policy,
budget, start. A pretrained policy runs the method in a pretrained setting.

  mmrl fit recipe=grpo                    sums, for two cores
  mmrl fit recipe=gspo task=dataset task.path=FILE policy=text policy.path=MODEL
  mmrl fit method=gspo setting=pretrained_text_lora policy.path=MODEL
  mmrl fit method=gspo setting=paper policy.path=MODEL    the paper's numbers
  mmrl fit recipe=demo_vla sim=push       a robot policy in a simulator
  mmrl fit start=sums                     the warm start of a recipe, alone
  mmrl fit recipe=grpo trainer.max_epochs=20 --print_config
""",
    ),
    "evaluate": Job(
        "checkpoints and runs, with intervals",
        (
            ("evaluate RUN_FOLDER", "measure checkpoints on held-out problems"),
            ("compare RUNS RUNS", "means over seeds with intervals, and a plot"),
            ("weights BEFORE AFTER", "how training changed the weight matrices"),
        ),
        """Training never sees the problems that are measured on. Runs are compared on the
same problems and draws; a hash of the protocol says what may be compared.

  mmrl evaluate runs/mine compare=start             what training changed
  mmrl evaluate runs/mine compare=runs/other        two runs, paired
  mmrl evaluate runs/mine num_samples=8             pass@k; also with compare=
  mmrl evaluate task=arithmetic policy.path=MODEL   a model without a run
  mmrl evaluate sim=push policy=expert              a simulator's expert
  mmrl fit --multirun recipe=grpo,rloo seed=0,1,2   the runs of a comparison
""",
    ),
    "look": Job(
        "at what there is to choose, and at what a policy wrote",
        (
            ("list [GROUP [NAME]]", "recipes, methods, settings, tasks, ..."),
            ("show RUN_FOLDER", "prompts, completions and scores of a run"),
            ("completion bash|zsh", "completion of commands, options and folders"),
        ),
        """  mmrl list                      all groups
  mmrl list recipes              by theme, with minutes and result
  mmrl list recipes gspo         one recipe: method, setting, what differs
  mmrl list methods gspo         one method: its paper and the paper's numbers
  mmrl list settings             toys for two cores, then pretrained ones
  mmrl show runs/mine            the newest iteration, colours by advantage
  mmrl show runs/mine 40 failures sort=reward
  mmrl show runs/mine --html     one file, with filters and sorting
""",
    ),
    "serve": Job(
        "a trained policy, to people, robots and the Hub",
        (
            ("chat RUN_FOLDER", "talk to a text or vision-language policy"),
            ("serve RUN_FOLDER", "answer with actions, completions or scores"),
            ("robot RUN_FOLDER", "play a robot in real time, take over, record"),
            ("push RUN_FOLDER repo=NAME", "upload a policy, with a model card"),
        ),
        """  mmrl chat runs/mine                       in the run's chat template
  mmrl serve runs/mine port=8000            websockets, in openpi's wire format
  mmrl evaluate recipe=demo_vla policy=remote policy.url=ws://127.0.0.1:8000
  mmrl robot runs/mine takeover=expert      its simulator, with a scripted human
  mmrl robot runs/mine robot=arm.py:Arm out=data/arm    your robot, recorded
  mmrl push runs/mine --dry-run             the model card alone
  mmrl push runs/mine repo=USER/NAME
""",
    ),
    "plan": Job(
        "a run before it starts",
        (
            ("plan recipe=NAME", "memory by phase and rank, without training"),
            ("doctor [recipe=NAME]", "versions, devices, packages; every process"),
        ),
        """Both take the arguments of `mmrl fit`. No weights are loaded.

  mmrl plan recipe=grpo policy=smollm2 --memory 8GiB
  mmrl plan recipe=grpo policy=text policy.path=MODEL trainer.devices=8
  mmrl plan recipe=grpo --from runs/mine    with seconds, scaled from a run
  mmrl doctor                               this machine
  mmrl doctor recipe=grpo trainer.devices=8 strategy=fsdp2    every process
""",
    ),
}
"""Each command is in one job, in the order in which the help shows them."""


def format_overview() -> str:
    """All commands by job, on one screen of 24 lines."""
    lines = ["mmrl: reinforcement learning for text, vision-language and robot policies"]
    for name, job in JOBS.items():
        lines += [f"{name}: {job.purpose}", *_format_commands(job)]
    lines += [
        "`mmrl help JOB`, `mmrl COMMAND --help` say more; `mmrl --version` has versions.",
    ]
    return "\n".join(lines) + "\n"


def format_job(name: str) -> str:
    """One screen about a job: its commands and how they are used."""
    job = JOBS[name]
    names = ", ".join(command.split()[0] for command, _ in job.commands)
    lines = [f"{name}: {job.purpose}", "", *_format_commands(job)]
    return "\n".join(lines) + f"\n\n{job.steps}\n`mmrl COMMAND --help` explains a command: {names}.\n"


def _format_commands(job: Job) -> list[str]:
    return [f"  mmrl {command:26}  {summary}" for command, summary in job.commands]
