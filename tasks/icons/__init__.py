"""Icons: name a symbol, or find it in a grid."""

from tasks.icons.task import Icons

__all__ = ["Icons"]
