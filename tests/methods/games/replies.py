"""An engine whose texts are a function of what it is asked."""

import torch

from mmrl.core.types import Completion


class ReplyEngine:
    """Completes each request with reply(view, views): its text, and (view, model) of all requests, this one last."""

    def __init__(self, reply):
        self.reply, self.views = reply, []

    def sample(self, requests, sampling):
        completions = []
        for request in requests:
            view = request.observation["messages"][0]["content"]
            self.views.append((view, request.model))
            completions.append(complete(self.reply(view, self.views)))
        return completions


def complete(text):
    """A completion of an id for each character and one for the end."""
    one = torch.ones(len(text) + 1)
    return Completion({}, one.long(), -one, one.bool(), text)
