"""Help: the commands by job, one screen about each job, and the usage of each command."""
