"""What runs in the processes of a simulator. Needs Python 3.9, numpy, gymnasium and msgpack; imports nothing else."""
