"""`mmrl rounds`: stages (sample, score, filter, fit, evaluate) of a file, repeated over rounds."""
