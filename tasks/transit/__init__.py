"""Transit maps: routes, stations and lines of drawn networks."""

from tasks.transit.task import Transit

__all__ = ["Transit"]
