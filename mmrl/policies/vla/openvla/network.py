"""OpenVLA as a token VLA: action tokens are written one after another, each given those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import DynamicCache

from mmrl.policies.text.cache import cache_argument
from mmrl.policies.vla.openvla.checkpoint import load_network, save_network
from mmrl.policies.vla.openvla.model import OpenVLA
from mmrl.policies.vla.openvla.settings import read_settings
from mmrl.policies.vla.pretrained.token.network import Choose, Scores, TokenVLANetwork


class OpenVLANetwork(TokenVLANetwork):
    """Calls an `OpenVLA`. Tokens: first word, patches, further words, padding, last word, action tokens.

    The last word of a prompt is moved behind the padding, so that every row predicts its first action at the same
    place. Positions leave the padding out, so a row's numbers do not depend on the rows beside it.
    """

    @classmethod
    def load(cls, path: str, dtype: str, attention: str) -> nn.Module:
        settings = read_settings(path)
        return load_network(lambda: OpenVLA(settings, attention), path, dtype)

    @staticmethod
    def save(model: Any, folder: Path) -> None:
        save_network(model, folder)

    @property
    def bins(self) -> int:
        return self.model.settings.n_action_bins

    @property
    def width(self) -> int:
        return self.model.settings.text_config.hidden_size

    @property
    def dtype(self) -> torch.dtype:
        return self.model.language_model.dtype

    @property
    def vision(self) -> Sequence[nn.Module]:
        return self.model.vision_backbone, self.model.projector

    @property
    def unused(self) -> Sequence[nn.Module]:
        return self.model.vision_backbone.unused

    def score(self, inputs: Mapping[str, Tensor], chosen: Tensor) -> Scores:
        context, mask = self.embed(inputs)
        before = self.model.language_model.model.embed_tokens(self.model.action_tokens(chosen[:, :-1]))
        tokens = torch.cat([context, before.to(context.dtype)], dim=1)
        mask = pad(mask, (0, before.shape[1]), value=1)
        hidden = self.run(tokens, mask)[:, -chosen.shape[1] :]
        return Scores(self.model.action_logits(hidden), hidden[:, 0])

    def sample(self, inputs: Mapping[str, Tensor], owner: Tensor, count: int, choose: Choose) -> Tensor:
        cache = DynamicCache()
        context, mask = self.embed(inputs)
        state = self.run(context, mask, cache)[:, -1]
        hidden, mask = state[owner], mask[owner]
        cache.batch_select_indices(owner)
        for number in range(count):
            ids = choose(self.model.action_logits(hidden[:, None]))
            if number + 1 < count:
                token = self.model.language_model.model.embed_tokens(self.model.action_tokens(ids))
                mask = pad(mask, (0, 1), value=1)
                hidden = self.run(token, mask, cache)[:, -1]
        return state

    def state(self, inputs: Mapping[str, Tensor], count: int) -> Tensor:
        context, mask = self.embed(inputs)
        return self.run(context, mask, DynamicCache())[:, -1]

    def embed(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Embed contexts as tokens [N, S, width] with mask [N, S], the last word of each prompt at the end."""
        ids, mask = inputs["input_ids"], inputs["attention_mask"].long()
        last = mask.sum(dim=1, keepdim=True) - 1
        images = self.embed_images(inputs)
        tokens = self.model.embed_context(torch.cat([ids, ids.gather(1, last)], dim=1), images)
        words = pad(mask.scatter(1, last, 0), (0, 1), value=1)
        return tokens, torch.cat([words[:, :1], words.new_ones(images.shape[:2]), words[:, 1:]], dim=1)

    def embed_images(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Embed what comes after the first word [N, P, width]: the patches of all images."""
        return self.model.embed_images(inputs["pixel_values"])

    def run(self, tokens: Tensor, mask: Tensor, cache: Any = None) -> Tensor:
        """Run the language model on tokens [N, S, width] after those in the cache; features [N, S, width].

        `mask` [N, K] is that of all tokens, with those in the cache.
        """
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        llama = self.model.language_model.model
        past = {} if cache is None else {cache_argument(llama): cache}
        attended = self.attention_mask(mask, tokens.shape[1])
        inputs = {"inputs_embeds": tokens, "attention_mask": attended, "position_ids": positions}
        return llama(**inputs, **past, use_cache=cache is not None).last_hidden_state

    def attention_mask(self, mask: Tensor, length: int) -> Tensor:
        """Return the mask as the language model takes it, for the last `length` of K tokens; `mask` is [N, K]."""
        return mask

    def enable_gradient_checkpointing(self) -> None:
        self.model.language_model.gradient_checkpointing_enable({"use_reentrant": False})
        for encoder in self.model.vision_backbone.encoders:
            encoder.set_grad_checkpointing(True)
