"""Simulators of environments whose reward is a written program."""
