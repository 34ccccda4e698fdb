"""Prompts with responses as training data for a causal language model, and the texts that it generates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from probekit.adaptation.data.batches import mask_of, padded
from probekit.adaptation.data.options import TOKENS, DecodingKind
from probekit.adaptation.data.text import SplitData, windows_reader
from probekit.adaptation.heads.head import IGNORED
from probekit.adaptation.heads.response import Response, continued
from probekit.errors import UsageError
from probekit.models.loading import TextReader
from probekit.models.transformers.tokens import truncation
from probekit.tasks.task import Split, Task


class ResponseData(SplitData):
    """The prompts and responses of a split: prompt, end of text, response, end of text (Zhang et al. 2020, DialoGPT).

    The last half of what the model reads is kept of a longer prompt, and the beginning of a response that does not fit
    behind it.

    Attributes
    ----------
    prompts, responses : list[list[int]]
        The pieces of each example; the prompt with the end of text that separates it, the response with its end.
    """

    def __init__(
        self, task: Task, split: Split, tokenizer: TextReader, *, end: int, decoding: DecodingKind | None,
        most: int | None, seed: int,
    ) -> None:  # fmt: skip
        reader = windows_reader(tokenizer, "responses")
        super().__init__(task, split)
        self.end, self.seed = end, seed
        self.decoding, self.most, self.room = decoding or DecodingKind.GREEDY, most or TOKENS, reader.max_length
        self.backend, self.padding_id = reader.backend, reader.padding_id
        self.prompts, self.responses, self.truncated = self._pieces(task, split)
        self.length = np.array([len(p) + len(r) for p, r in zip(self.prompts, self.responses, strict=True)])

    def _pieces(self, task: Task, split: Split) -> tuple[list[list[int]], list[list[int]], int]:
        with truncation(self.backend):
            texts = [e.text for e in split], [e.pair or "" for e in split]
            first, second = ([e.ids for e in self.backend.encode_batch(t, add_special_tokens=False)] for t in texts)
            whole = self.backend.encode("a")
        start = whole.ids[: whole.special_tokens_mask.index(0)]  # such as <s>
        prompts, responses, truncated = [], [], 0
        for e, prompt, response in zip(split, first, second, strict=True):
            if not prompt or not response:
                raise UsageError(
                    f"{task.name} {split.name}, example {e.id!r} has an empty prompt or response; remove it."
                )
            kept = prompt[-max(1, self.room // 2 - len(start) - 1) :]
            prompts.append([*start, *kept, self.end])
            responses.append([*response, self.end][: self.room - len(prompts[-1])])
            truncated += len(kept) < len(prompt) or len(responses[-1]) <= len(response)
        return prompts, responses, truncated

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        length = self.length[list(rows)]
        ids = np.concatenate([np.array(self.prompts[i] + self.responses[i], dtype=np.int64) for i in rows])
        gold = np.concatenate([np.array([IGNORED] * len(self.prompts[i]) + self.responses[i]) for i in rows])
        mask = mask_of(length)
        first = {"input_ids": padded(ids, length, self.padding_id), "attention_mask": mask.long()}
        return {"labels": padded(gold, length, IGNORED), "first": {**first, "special": torch.zeros_like(mask)}}

    def evaluated(
        self, learner: Any, rows: Sequence[int], batch: Mapping[str, Any], head: Response
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each example the generated and the given response, (1,), and the latter's nats and pieces, (1, 2)."""
        nats, of = head.nats(head(learner.read(batch["first"])), batch["labels"])
        count = np.bincount(of.cpu().numpy(), minlength=len(rows))
        total = np.bincount(of.cpu().numpy(), nats.double().cpu().numpy(), len(rows))
        draws = None
        if self.decoding is DecodingKind.SAMPLE:
            seeds = [int(np.random.SeedSequence((self.seed, i)).generate_state(1)[0]) for i in rows]
            draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        prompts = [self.prompts[i] for i in rows]
        most = [min(self.most, self.room - len(prompt)) for prompt in prompts]
        found = continued(learner.encoder, head.output, prompts, most, self.end, draws)
        return [
            (
                np.array([self.backend.decode(pieces, skip_special_tokens=True).strip()], dtype=object),
                np.array([self.examples[i].pair], dtype=object),
                np.array([[a, b]]),
            )
            for i, pieces, a, b in zip(rows, found, total, count, strict=True)
        ]
