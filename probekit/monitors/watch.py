"""Probes that watch a model of transformers while it writes, by the states that it computes anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import nn

from probekit.errors import ModelError, ProbekitError, UsageError
from probekit.models.folder import text_config
from probekit.models.identity import identify
from probekit.models.transformers.blocks import body, find_blocks, find_final_norm
from probekit.monitors.alarm import Alarm, Running
from probekit.monitors.scoring import changes
from probekit.notes import logger
from probekit.probes.solvers.scores import Score
from probekit.rows.schema import FINAL
from probekit.sites import RESIDUAL, Site

if TYPE_CHECKING:
    from probekit.monitors.probe import Probe

log = logger(__name__)


class Watch:
    """Scores of each piece while a model writes.

    ::

        with probe.attach(model, alarm=alarm) as watch:
            model.generate(**inputs, stopping_criteria=[watch])
        watch.scores[0]  # (sequences, pieces) of the first probe

    Parameters
    ----------
    probes : sequence of Probe
        Linear probes or monitors of layers of the residual stream, or of ``final_norm``; of two classes or a number.
    model : PreTrainedModel
        A decoder of transformers.
    alarm : Alarm, optional
        Of the first probe: as a stopping criterion, the watch ends a text of whose pieces the score is too high. The
        pieces of the prompt count only with ``prompt``.
    callback : callable, optional
        Called after each step with the number of pieces read, and float32 (probes, sequences), the scores of the last.
    prompt : bool
        Whether the alarm reads the pieces of the prompt, too.
    anyway : bool
        Whether other weights than those of the probes' cards are taken.

    Attributes
    ----------
    scores : list of np.ndarray
        float32 (sequences, pieces) of each probe: the logit, or the number, of each piece that the model has read; NaN
        for padding. The last piece that it writes is never read.
    prompts : int
        How many of the pieces are those of the prompt, with padding.
    stopped : np.ndarray
        Bool (sequences,), whether the alarm has ended the text.

    Raises
    ------
    UsageError
        If a probe has no score of single pieces, reads another site or width, or other weights.
    """

    def __init__(
        self, probes: Sequence[Probe], model: Any, *, alarm: Alarm | None = None,
        callback: Callable[[int, np.ndarray], Any] | None = None, prompt: bool = False, anyway: bool = False,
    ) -> None:  # fmt: skip
        self.probes, self.model, self.alarm, self.callback = tuple(probes), model, alarm, callback
        self.prompt, self.base = prompt, body(model)
        self._places = {place: [k for k, one in enumerate(probes) if one.layer == place] for place in _places(probes)}
        for probe in self.probes:
            _check(probe, model, anyway=anyway)
        self._stacked = {place: self._weights(of) for place, of in self._places.items()}
        self._handles: list[Any] = []
        self.reset()

    def reset(self) -> None:
        """Forget what was read; the next pass begins new texts."""
        self._parts: list[torch.Tensor] = []
        self._now: dict[str, torch.Tensor] = {}
        self._running: Running | None = None
        self._seen = self.prompts = 0
        self.stopped = np.zeros(0, dtype=bool)

    @property
    def scores(self) -> list[np.ndarray]:
        """See the class."""
        if not self._parts:
            return [np.empty((0, 0), np.float32) for _ in self.probes]
        return list(torch.cat(self._parts, 2).cpu().numpy())

    def _weights(self, of: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Directions (k, d) of the probes of one place, and their biases (k,), the means folded in by float64."""
        arrays = [self.probes[k].weights.arrays for k in of]
        weight = np.concatenate([one["weight"] for one in arrays]).astype(np.float64)
        means = np.stack([one["mean"] for one in arrays]).astype(np.float64)
        bias = np.concatenate([one["bias"] for one in arrays]) - (weight * means).sum(1)
        return torch.from_numpy(weight.astype(np.float32)), torch.from_numpy(bias.astype(np.float32))

    def __enter__(self) -> Self:
        """Begin to watch."""
        self.reset()
        norm = self._norm() if FINAL in self._places else None  # found by a pass
        blocks, hook = find_blocks(self.base), self._handles.append
        for place in self._places:
            site = Site.parse(place)
            if norm is not None and site.name == FINAL:
                hook(norm.register_forward_hook(lambda _m, _a, out, place=place: self._score(place, out)))
            elif site.layer == len(blocks):
                hook(blocks[-1].register_forward_hook(lambda _m, _a, out, place=place: self._score(place, out)))
            else:
                block = blocks[int(site.layer or 0)]
                hook(block.register_forward_pre_hook(
                    lambda _m, args, kw, place=place: self._score(place, args[0] if args else kw["hidden_states"]),
                    with_kwargs=True,
                ))  # fmt: skip
        hook(self.base.register_forward_pre_hook(self._begin, with_kwargs=True))
        hook(self.base.register_forward_hook(self._end))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End watching; the scores stay."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _norm(self) -> nn.Module:
        ids = torch.arange(3, device=self.base.device)[None]
        found = find_final_norm(self.base, lambda: self.base(input_ids=ids).last_hidden_state)
        if found is None:
            raise ModelError(f"{type(self.model).__name__} has no norm after its last block, which the probe reads.")
        return found[0]

    def _begin(self, _: nn.Module, args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
        """How many pieces are new in this pass, and which are padding."""
        ids: Any = args[0] if args else given.get("input_ids")
        ids = given["inputs_embeds"] if ids is None else ids
        past = given.get("past_key_values")
        before = 0 if past is None else int(past.get_seq_length())
        total, mask = before + ids.shape[1], given.get("attention_mask")
        goes_on = before == self._seen if before else total == self._seen + 1  # without a cache, all is read again
        if not goes_on or (self._parts and self._parts[0].shape[1] != ids.shape[0]):
            self.reset()
        self._new, self._mask = total - self._seen, None
        if isinstance(mask, torch.Tensor) and mask.ndim == 2:
            self._mask = mask[:, -self._new :] == 0
        if not self._seen:
            self.prompts, self.stopped = total, np.zeros(ids.shape[0], dtype=bool)
        self._seen = total

    def _score(self, place: str, output: Any) -> None:
        hidden = (output[0] if isinstance(output, tuple | list) else output).detach()
        weight, bias = (part.to(hidden.device) for part in self._stacked[place])
        self._stacked[place] = weight, bias
        self._now[place] = torch.addmm(bias, hidden[:, -self._new :].float().flatten(0, 1), weight.T).view(
            hidden.shape[0], self._new, -1
        )

    def _end(self, *_: Any) -> None:
        own = torch.empty(len(self.probes), *next(iter(self._now.values())).shape[:2])
        for place, of in self._places.items():
            own[of] = self._now[place].permute(2, 0, 1).to(own.device)
        if self._mask is not None:
            own[:, self._mask.to(own.device)] = torch.nan
        self._parts.append(own)
        if self.prompt or len(self._parts) > 1:
            self._alarm(own[0].numpy())
        if self.callback is not None:
            self.callback(self._seen, own[:, :, -1].numpy())

    def _alarm(self, own: np.ndarray) -> None:
        """Note the texts of which a piece brings the rule's score above the threshold; own is (sequences, pieces)."""
        if self.alarm is None:
            return
        if self._running is None:
            self._running = Running(Score.parse(self.alarm.rule), len(own))
        for new in own.T:
            at = np.flatnonzero(~np.isnan(new))
            self.stopped[at] |= self._running.step(at, new[at]) > self.alarm.threshold

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Which texts the alarm ends, bool (sequences,): a stopping criterion of transformers."""
        return torch.from_numpy(self.stopped.copy()).to(input_ids.device)


def _places(probes: Sequence[Probe]) -> list[str]:
    if not probes:
        raise UsageError("there is no probe to attach.")
    return list(dict.fromkeys(probe.layer for probe in probes))


def _check(probe: Probe, model: Any, *, anyway: bool) -> None:
    """Refuse a probe that cannot be read off this model's blocks."""
    site = Site.parse(probe.layer)
    if probe.weights.form not in ("linear", "monitor") or probe.weights.outputs != 1:
        raise UsageError(f"{probe!r} has no single score of a piece; attach linear probes of two classes or a number.")
    if site.name not in (RESIDUAL, FINAL):
        raise UsageError(f"the probe reads {site}; layers of the residual stream and final_norm can be watched.")
    config = text_config(model.config)
    if probe.weights.width != config.hidden_size or int(site.layer or 0) > config.num_hidden_layers:
        raise UsageError(
            f"the probe reads layer {site} of width {probe.weights.width}; the model has {config.num_hidden_layers} "
            f"blocks of width {config.hidden_size}."
        )
    found: dict[str, Any] = {}
    with suppress(ProbekitError, OSError, TypeError):
        found = identify(model.config._name_or_path)
    wanted = {k: v for k, v in probe.card["encoder"].items() if k == "weights_digest"}
    if not found:
        log.info("whether this is the model that the probe was fitted on cannot be seen: it has no folder.")
    elif (changed := changes(wanted, found)) and not anyway:
        raise UsageError(f"the probe was fitted on other vectors: {'; '.join(changed)}; anyway=True attaches it.")
