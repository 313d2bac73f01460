"""Read HDF5 files of episodes."""
