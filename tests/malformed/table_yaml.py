"""Files given to `mmrl fit --config` that cannot be used: (name, old text, new text, key, remedy).

The new text stands for the old one in a valid config.yaml; an old text of None means that it is the whole file.
"""

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)

FILES: list[tuple[str, str | None, str, str, str]] = [
    ("empty", None, "", "config.yaml", "is empty"),
    ("only a comment", None, "# nothing\n", "config.yaml", "is empty"),
    ("null", None, "null\n", "config.yaml", "is empty"),
    ("a list", None, "- 1\n- 2\n", "config.yaml", "model"),
    ("a word", None, "words\n", "config.yaml", "model"),
    ("a number", None, "5\n", "config.yaml", "model"),
    ("an empty mapping", None, "{}\n", "config.yaml", "model"),
    ("without a model", None, "trainer: {max_epochs: 1}\n", "config.yaml", "model"),
    ("a bomb of aliases", None, BOMB, "config.yaml", "aliases"),
    ("an alias of itself", None, "model: &m [*m]\n", "config.yaml", "aliases"),
    ("not closed", None, "model: {a: 1\n", "config.yaml", "line"),
    ("a tab", None, "model:\n\ta: 1\n", "config.yaml", "line"),
    ("two documents", None, "model: 1\n---\nmodel: 2\n", "config.yaml", "one document"),
    ("a Python object", None, "model: !!python/object/apply:os.system [id]\n", "config.yaml", "python"),
    ("an unknown tag", None, "model: !mine 5\n", "config.yaml", "!mine"),
    ("a NUL byte", None, "model: \x00\n", "config.yaml", "character"),
    ("a key that is a list", None, "? [a, b]\n: 1\n", "config.yaml", "key"),
    ("Hydra's own file", None, "defaults: [grpo]\n", "config.yaml", "--print_config"),
    ("a key twice", "  max_epochs: 1\n", "  max_epochs: 1\n  max_epochs: 7\n", "'max_epochs'", "twice"),
    (
        "a section twice",
        "seed_everything: 0\n",
        "seed_everything: 0\nseed_everything: 1\n",
        "'seed_everything'",
        "twice",
    ),
    ("an unknown section", "seed_everything: 0\n", "seed_everything: 0\ntraner: 1\n", "traner", "trainer"),
    ("a seed that is a word", "seed_everything: 0\n", "seed_everything: abc\n", "seed", "whole number"),
    ("a negative seed", "seed_everything: 0\n", "seed_everything: -1\n", "seed", "whole number"),
    ("an infinite rate", "lr: 0.0003\n", "lr: .inf\n", "model.optimizer.lr", "finite"),
    ("a word for a rate", "lr: 0.0003\n", "lr: fast\n", "model.optimizer", "fast"),
    (
        "no micro-batches",
        "accumulate_grad_batches: 1\n",
        "accumulate_grad_batches: 0\n",
        "accumulate_grad",
        "at least 1",
    ),
    ("an unknown option", "  max_epochs: 1\n", "  max_epoch: 1\n", "'max_epoch'", "'max_epochs'"),
    ("an unknown class", "torch.optim.AdamW", "torch.optim.Adamm", "torch.optim.Adamm", "model.optimizer"),
    ("a class that is none", "torch.optim.AdamW", "os.system", "model.optimizer", "os.system"),
    ("too many prompts", "num_prompts: 2\n", "num_prompts: 99999999999999999999\n", "data.num_prompts", "at most"),
]

WORDS: list[tuple[str, str, str]] = [
    ("--config /no/such.yaml", "/no/such.yaml", "no such file"),
    ("--config /tmp", "/tmp", "file"),
    ("--config", "--config", "file"),
    ("--config=", "--config", "file"),
    ("--config CONFIG --trainer.callbacks.warm_start null", "--trainer.callbacks.warm_start", "list"),
    ("--config CONFIG --trainer.callbacks.warm_start.stages null", "--trainer.callbacks.warm_start.stages", "list"),
    ("--config CONFIG --trainer.logger.csv null", "--trainer.logger.csv", "list"),
    ("--config CONFIG --trainer.nope 5", "trainer.nope", "devices"),
    ("--config CONFIG --nope 5", "nope", "--trainer"),
    ("--config CONFIG --nope", "nope", "--trainer"),
    ("--config CONFIG --optimizer.lr 1", "--optimizer.lr", "--model.optimizer.lr"),
    ("--config CONFIG --sim.id x", "--sim.id", "--data.task.sim.id"),
    ("--config CONFIG --model.optimizer.lr -1", "model.optimizer.lr", "at least 0"),
    ("--config CONFIG --model.optimizer.lr abc", "model.optimizer", "abc"),
    ("--config CONFIG --trainer.max_epochs", "trainer.max_epochs", "value"),
    ("--config CONFIG --trainer.max_epochs abc", "trainer.max_epochs", "int"),
    ("--config CONFIG --trainer.accumulate_grad_batches 0", "trainer.accumulate_grad_batches", "at least 1"),
    ("--config CONFIG --data.num_prompts 0", "num_prompts", "at least 1"),
    ("--config CONFIG --data.num_promts 3", "num_promts", "'num_prompts'"),
    ("--config CONFIG --seed_everything abc", "seed", "whole number"),
    ("--config CONFIG --seed_everything -1", "seed", "whole number"),
    ("--config CONFIG --run_dir /dev/null", "run_dir", "folder"),
    ("--config CONFIG --ckpt_path /no/such.ckpt", "/no/such.ckpt", "no such file"),
    ("--config CONFIG --model torch.nn.Linear", "model", "LightningModule"),
    ("--config CONFIG trainer.max_epochs=2", "Hydra overrides", "not both"),
    ("--trainer.max_epochs 2", "--config", "model"),
]

EVALUATED = ("empty", "a list", "a bomb of aliases", "not closed", "a key twice", "without a model", "a NUL byte")
"""Names of FILES that are also tried as the config.yaml of a run to be evaluated."""
