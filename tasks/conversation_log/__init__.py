"""Your own log of conversations, with a reward for every turn of the assistant."""

from tasks.conversation_log.task import ConversationLog

__all__ = ["ConversationLog"]
