"""Words of the other commands that cannot be used: (words of mmrl, key, remedy). RUN is a run's folder."""

from tests.malformed.table_keys import Row

EVALUATE: list[Row] = [
    ("evaluate", "one run folder", "mmrl evaluate runs/demo"),
    ("evaluate RUN RUN", "one run folder", "mmrl evaluate runs/demo"),
    ("evaluate FOLDER=X", "FOLDER=X", "run folder"),
    ("evaluate /no/such", "/no/such", "folder of a run"),
    (("evaluate", ""), "''", "run folder"),
    ("evaluate /etc/passwd", "/etc/passwd", "folder of a run"),
    ("evaluate RUN count=0", "count=0", "at least 1"),
    ("evaluate RUN count=abc", "count=abc", "whole number"),
    ("evaluate RUN count=1.5", "count=1.5", "whole number"),
    ("evaluate RUN count=²", "count=²", "whole number"),
    ("evaluate RUN count=", "count=", "whole number"),
    ("evaluate RUN count=99999999999999999999", "count=9999", "at most"),
    ("evaluate RUN num_samples=0", "num_samples=0", "at least 1"),
    ("evaluate RUN num_samples=-1", "num_samples=-1", "whole number"),
    ("evaluate RUN num_samples=9999999999", "num_samples=9999999999", "at most"),
    ("evaluate RUN video_episodes=0", "video_episodes=0", "at least 1"),
    ("evaluate RUN video=maybe", "video=maybe", "true or false"),
    ("evaluate RUN video=", "video=", "true or false"),
    ("evaluate RUN checkpoint=nope", "'nope'", "there are"),
    ("evaluate RUN checkpoint=", "checkpoint=", "last"),
    ("evaluate RUN compare=nope", "'nope'", "there are"),
    ("evaluate RUN compare=", "compare=", "start"),
    ("evaluate RUN cuont=5", "'cuont'", "'count'"),
    ("evaluate RUN count=5 count=6", "count=6", "once"),
    ("evaluate RUN sim.renderer", "one run folder", "mmrl evaluate"),
    ("evaluate RUN decode=", "decode=", "argmax"),
    ("evaluate RUN recipe=grpo", "'recipe'", "Options are"),
    ("evaluate RUN --video", "--video", "key=value"),
]

DATA_COMMAND: list[Row] = [
    ("data nope", "nope", "record, inspect and convert"),
    ("data record", "out=FOLDER", "missing"),
    ("data record out=", "out=", "folder"),
    ("data record sim=reach out=OUT format=hdf5", "format=hdf5", "lerobot"),
    ("data record sim=reach out=OUT split=test", "split=test", "held_out"),
    *(
        (f"data record sim=reach out=OUT {name}={value}", f"{name}={value}", "number")
        for name, value in (
            *(("offset", value) for value in ("abc", "nan", "inf", "1.5")),
            *(("num_episodes", value) for value in ("abc", "nan", "inf", "2.5", "1e30", "")),
            *(("noise", value) for value in ("abc", "nan", "inf")),
        )
    ),
    ("data record sim=reach out=OUT offset=-1", "offset=-1", "at least 0"),
    ("data record sim=reach out=OUT offset=99999999999", "offset=99999999999", "at most"),
    ("data record sim=reach out=OUT num_episodes=0", "num_episodes=0", "at least 1"),
    ("data record sim=reach out=OUT num_episodes=-1", "num_episodes=-1", "at least 1"),
    ("data record sim=reach out=OUT noise=-1", "noise=-1", "at least 0"),
    ("data record sim=reach out=OUT video=maybe", "video=maybe", "true or false"),
    ("data record sim=reach out=OUT policy=tiny_vla", "policy=tiny_vla", "run=RUN_FOLDER"),
    ("data record sim=reach out=OUT checkpoint=last", "checkpoint=last", "run=RUN_FOLDER"),
    ("data record sim=reach out=OUT decode=argmax", "decode=argmax", "run=RUN_FOLDER"),
    ("data record out=OUT", "sim=NAME", "mmrl list sims"),
    ("data record sim=pish out=OUT", "sim=pish", "'push'"),
    ("data record sim=reach out=OUT nonsense", "'nonsense'", "key=value"),
    ("data record sim=reach out=OUT num_episode=3", "num_episode", "'num_episodes'"),
    ("data record sim=reach out=/proc/x", "out=/proc/x", "another"),
    ("data record sim=reach out=/dev/null/x", "out=/dev/null/x", "folder"),
    ("data record run=/no/such out=OUT", "/no/such", "folder of a run"),
    ("data record run=RUN noise=0.1 out=OUT", "noise=0.1", "expert"),
    ("data record run=RUN decode=beam out=OUT", "decode=beam", "argmax"),
    ("data inspect", "one dataset", "mmrl data inspect FOLDER"),
    ("data inspect /no /such", "one dataset", "mmrl data inspect FOLDER"),
    ("data inspect /no/such", "/no/such", "no such folder"),
    ("data inspect /etc/passwd", "/etc/passwd", "hdf5"),
    ("data inspect /no/such write=maybe", "write=maybe", "true or false"),
    ("data inspect rows=5 /no/such", "rows=5", "out"),
]

OTHERS: list[Row] = [
    ("fitt", "'fitt'", "commands are fit"),
    ("", "''", "commands are fit"),
    ("--versions", "'--versions'", "commands are fit"),
    ("list nope", "'nope'", "Groups are"),
    ("list recipess", "'recipess'", "'recipes'"),
    ("list phasess", "'phasess'", "'phases'"),
    ("list tasks policies", "one group", "recipes"),
    ("list recipes policies", "'policies'", "mmrl list recipes"),
    ("completion fish", "fish", "bash or zsh"),
    ("list recipe=grpo", "'recipe=grpo'", "Groups are"),
    ("doctor fix", "key=value", "fix"),
]
"""`mmrl ''` is the word that is empty."""
