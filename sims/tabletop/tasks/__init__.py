"""Tasks of the tabletop simulators: one file each."""
