"""OGBench's manipulation tasks with their scripted experts."""
