"""VLM-RM: goal-baseline similarity of a small dual encoder that is fitted to captions when it is first asked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mmrl.core.errors import check_at_least, check_positive
from mmrl.files.atomic import replace_file
from mmrl.methods.goals.vlm_rm.dual_encoder import DualEncoder, fit_dual_encoder
from mmrl.rewards.models.captions import SceneCaptions
from mmrl.rewards.models.similarity import GoalBaselineSimilarity

log = logging.getLogger(__name__)


class CaptionedSimilarity(GoalBaselineSimilarity):
    """`GoalBaselineSimilarity` of a `DualEncoder` in `path`, which is fitted to captions first where there is none.

    The sentence about the goal is the caption of the state in which the instruction is followed.
    Source: Rocamonde et al., 2023, arXiv:2310.12921, section 3, where CLIP is pretrained and stays as it is.

    Args:
        path: file of the encoder, in the folder of the run; a run that resumes reads it.
        captions: of the simulator's scenes.
        baseline: sentence about the scene without its goal.
        steps: of the fit.
        fit_batch_size: pictures of a step.
        lr: learning rate of the fit.
        seed: of the fit.
        options: of `GoalBaselineSimilarity`, such as alpha.
    """

    def __init__(
        self,
        path: str,
        captions: SceneCaptions,
        baseline: str,
        steps: int = 800,
        fit_batch_size: int = 128,
        lr: float = 2e-3,
        seed: int = 0,
        alpha: float = 0.5,
        device: str | None = None,
        batch_size: int = 64,
    ):
        super().__init__(path, baseline, "{instruction}", alpha, device, batch_size)
        check_at_least(1, "reward_model", steps=steps, fit_batch_size=fit_batch_size)
        check_positive("reward_model", lr=lr)
        self.captions = captions
        self.fit = {"steps": steps, "batch_size": fit_batch_size, "lr": lr, "seed": seed}
        self._model: DualEncoder | None = None

    def __call__(self, before: np.ndarray, after: np.ndarray, instructions: Sequence[str]) -> np.ndarray:
        return super().__call__(before, after, [self.captions.goal_of(text) for text in instructions])

    @property
    def encoder(self) -> DualEncoder:
        """The encoder, fitted or read at the first call."""
        if self._model is None:
            self._model = self._read_or_fit().to(self.device).eval().requires_grad_(False)
        return self._model

    def _read_or_fit(self) -> DualEncoder:
        path = Path(self.path)
        if path.exists():
            saved = torch.load(path, weights_only=True)
            model = DualEncoder(saved["image_size"])
            model.load_state_dict(saved["weights"])
            return model
        log.info("an encoder of pictures and sentences is fitted to captions: %s", path)
        model = fit_dual_encoder(self.captions, **self.fit)  # type: ignore[arg-type]
        size = self.captions.draw(np.random.default_rng(0), 1)[0].shape[1]
        with replace_file(path) as file:
            torch.save({"image_size": size, "weights": model.state_dict()}, file)
        return model

    @torch.no_grad()
    def _sentence(self, text: str) -> Tensor:
        if text not in self._sentences:
            self._sentences[text] = self.encoder.embed_sentences([text])[0]
        return self._sentences[text]

    @torch.no_grad()
    def _embed_images(self, frames: np.ndarray) -> Tensor:
        return self.encoder.embed_images(torch.from_numpy(np.ascontiguousarray(frames)).to(self.device))
