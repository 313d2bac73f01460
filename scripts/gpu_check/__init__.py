"""Parts of `make gpu-check`: its steps, the processes that they run in, its page, and a benchmark of its own."""
