"""Rewards computed by models: a classifier of answers, progress between images, similarity of image and text."""
