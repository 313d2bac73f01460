"""Twenty questions about everyday objects, answered from a fixed table."""

from tasks.twenty_questions.task import TwentyQuestions

__all__ = ["TwentyQuestions"]
