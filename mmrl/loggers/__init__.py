"""Loggers of experiment trackers: metrics, configuration, tables of samples and videos."""
