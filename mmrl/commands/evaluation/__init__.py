"""Parts of `mmrl evaluate`: its arguments, its data, a folder without a run, and the loggers of a run."""
