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
from probekit.models.folder import quantised_by, text_config
from probekit.models.identity import identify
from probekit.models.transformers.blocks import body, find_blocks, find_final_norm
from probekit.monitors.alarm import Alarm
from probekit.monitors.scoring import changes
from probekit.notes import logger
from probekit.probes.kept import one_line
from probekit.probes.solvers.scores import Running, Score
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
    ends : sequence of int, optional
        The pieces that end a text, after which its row is padding (default: those of the model's generation_config).
    anyway : bool
        Whether other weights, precisions, quantisations or adapters than those of the probes' cards are taken.

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
        If a probe has no score of single pieces, reads another site or width, or other weights, another precision,
        quantisation or adapters. The weights are those of the files that the model was loaded from: that they have
        changed in memory since (training, an adapter that was merged) is not noticed.
    """

    def __init__(
        self, probes: Sequence[Probe], model: Any, *, alarm: Alarm | None = None,
        callback: Callable[[int, np.ndarray], Any] | None = None, prompt: bool = False,
        ends: Sequence[int] | None = None, anyway: bool = False,
    ) -> None:  # fmt: skip
        if not isinstance(model, nn.Module) or not hasattr(model, "config"):
            raise UsageError(
                f"a watch is of a model of transformers, such as AutoModelForCausalLM.from_pretrained gives; this is "
                f"{type(model).__name__}."
            )
        self.probes, self.model, self.alarm, self.callback = tuple(probes), model, alarm, callback
        self.prompt, self.base = prompt, body(model)
        known: Any = getattr(getattr(model, "generation_config", None), "eos_token_id", None) if ends is None else ends
        self._ends = torch.tensor([known] if isinstance(known, int) else list(known or ()), dtype=torch.int64)
        self._places = {place: [k for k, one in enumerate(probes) if one.layer == place] for place in _places(probes)}
        for probe in self.probes:
            _check(probe, model, anyway=anyway)
        if alarm is not None:
            alarm.check(self.probes[0])
        self._stacked = {place: self._weights(of) for place, of in self._places.items()}
        self._handles: list[Any] = []
        self.reset()

    def reset(self) -> None:
        """Forget what was read; the next pass begins new texts."""
        self._parts: list[torch.Tensor] = []
        self._now: dict[str, torch.Tensor] = {}
        self._running: Running | None = None
        self._ids: torch.Tensor | None = None
        self._seen = self.prompts = 0
        self._asked = False
        self.stopped = np.zeros(0, dtype=bool)

    @property
    def scores(self) -> list[np.ndarray]:
        """See the class."""
        if not self._parts:
            return [np.empty((0, 0), np.float32) for _ in self.probes]
        return list(torch.cat(self._parts, 2).cpu().numpy())

    def _weights(self, of: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """Of the probes of one place directions (k, d), biases (k,), and a mean (d,) that is taken off first.

        What is left of each probe's own mean is folded into its bias in float64.
        """
        arrays = [one_line(self.probes[k].weights).arrays for k in of]
        weight = np.concatenate([one["weight"] for one in arrays])
        means = np.stack([one["mean"] for one in arrays])
        rest = (weight.astype(np.float64) * (means.astype(np.float64) - means[0])).sum(1)
        bias = np.concatenate([one["bias"] for one in arrays]) - rest
        return tuple(map(torch.from_numpy, (weight, bias.astype(np.float32), means[0].copy())))

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
        again = ids[:, : self._seen] if not before and ids.ndim == 2 else None  # without a cache, all is read again
        goes_on = before == self._seen if before else again is not None and self._read_before(again, total)
        if not goes_on or (self._parts and self._parts[0].shape[1] != ids.shape[0]):
            if before > self._seen or (before and self._parts):
                raise UsageError(
                    "the watch has not seen the pieces that the model keeps, or it takes some back: attach it before "
                    "the first piece is read, and leave out assisted decoding and a cache of a former text."
                )
            self.reset()
        self._ids = ids.clone() if not before and ids.ndim == 2 else self._ids
        self._new = total - self._seen
        self._mask = _padding(mask, total, self._new)
        if not self._seen:
            self.stopped = np.zeros(ids.shape[0], dtype=bool)
            self._ended = torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
        if not self._seen or (self._new > 1 and self.prompts == self._seen):  # a further part of a long prompt
            self.prompts = total
        elif ids.ndim == 2 and len(self._ends):
            ended = self._ended[:, None].expand(-1, self._new)
            self._mask = ended if self._mask is None else self._mask | ended
            self._ended = self._ended | torch.isin(ids[:, -self._new :], self._ends.to(ids.device)).any(1)
        self._seen = total

    def _read_before(self, ids: torch.Tensor, total: int) -> bool:
        """Whether these are the pieces that were read, with one more."""
        known = self._ids
        if known is None or total != self._seen + 1 or known.shape[0] != ids.shape[0]:
            return False
        return torch.equal(ids[:, : known.shape[1]], known)

    def _score(self, place: str, output: Any) -> None:
        hidden = (output[0] if isinstance(output, tuple | list) else output).detach()
        self._stacked[place] = weight, bias, mean = tuple(part.to(hidden.device) for part in self._stacked[place])
        new = hidden[:, -self._new :].float().flatten(0, 1) - mean
        self._now[place] = torch.addmm(bias, new, weight.T).view(hidden.shape[0], self._new, -1)

    def _end(self, *_: Any) -> None:
        own = torch.empty(len(self.probes), *next(iter(self._now.values())).shape[:2])
        for place, of in self._places.items():
            own[of] = self._now[place].permute(2, 0, 1).to(own.device)
        if self._mask is not None:
            own[:, self._mask.to(own.device)] = torch.nan
        self._parts.append(own)
        if self.prompt or self._seen > self.prompts:
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
            self.stopped[at] |= self._running.read(at, new[at][:, None])[:, 0] > self.alarm.threshold

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Which texts the alarm ends, bool (sequences,): a stopping criterion of transformers.

        Raises
        ------
        UsageError
            If the texts have changed rows, as in beam search.
        """
        if len(input_ids) != len(self.stopped):
            raise UsageError("beam search moves texts to other rows, so that no probe can follow them; leave it out.")
        if not self._asked and not self.prompt:  # all that was read is prompt, also a last part of one piece
            self.prompts, self._running, self.stopped = self._seen, None, np.zeros_like(self.stopped)
            self._ended = torch.zeros_like(self._ended)
        self._asked = True
        return torch.from_numpy(self.stopped.copy()).to(input_ids.device)


def _padding(mask: Any, total: int, new: int) -> torch.Tensor | None:
    """Which of the new pieces are padding, bool (sequences, new), by the attention mask; None without one.

    A mask (sequences, 1, queries, keys) lets a piece see itself and none after it; rows of padding see nothing or, in
    some versions of attention, everything.
    """
    mask = next(iter(mask.values())) if isinstance(mask, Mapping) and mask else mask
    if not isinstance(mask, torch.Tensor) or mask.ndim not in (2, 4):
        return None
    if mask.ndim == 2:
        return mask[:, -new:] == 0
    rows = mask[:, 0, -new:] if mask.dtype == torch.bool else mask[:, 0, -new:] == 0
    sees = torch.nn.functional.pad(rows, (0, 1))
    at, key = torch.arange(new), torch.arange(total - new, total)
    return ~sees[:, at, key] | sees[:, at, key + 1]


def _places(probes: Sequence[Probe]) -> list[str]:
    if not probes:
        raise UsageError("there is no probe to attach.")
    return list(dict.fromkeys(probe.layer for probe in probes))


def _check(probe: Probe, model: Any, *, anyway: bool) -> None:
    """Refuse a probe that cannot be read off this model's blocks."""
    site = Site.parse(probe.layer)
    if not probe.scores_pieces:
        raise UsageError(f"{probe!r} has no single score of a piece; attach linear probes of two classes or a number.")
    if site.name not in (RESIDUAL, FINAL):
        raise UsageError(f"the probe reads {site}; layers of the residual stream and final_norm can be watched.")
    config = text_config(model.config)
    if probe.weights.width != config.hidden_size or int(site.layer or 0) > config.num_hidden_layers:
        raise UsageError(
            f"the probe reads layer {site} of width {probe.weights.width}; the model has {config.num_hidden_layers} "
            f"blocks of width {config.hidden_size}."
        )
    wanted, found = probe.card["encoder"], _described(model)
    names = [name for name in ("dtype", "quantised", "adapters") if name == "adapters" or "dtype" in wanted]
    if "weights_digest" in found and "weights_digest" in wanted:
        names = ["weights_digest", *names]
    else:
        log.info("whether this is the model that the probe was fitted on cannot be seen: there is no digest.")
    if (changed := changes(wanted, found, names)) and not anyway:
        raise UsageError(f"the probe was fitted on other vectors: {'; '.join(changed)}; anyway=True attaches it.")


def _described(model: Any) -> dict[str, Any]:
    """What tells a loaded model from others: its precision, quantisation, adapters, and the digest of its files.

    Weights that have changed since the files were read are not seen.
    """
    found, config = dict[str, Any](), model.config
    with suppress(ProbekitError, OSError, TypeError):
        found = identify(config._name_or_path)
    how = getattr(config, "quantization_config", None)
    if quantised := quantised_by(how if isinstance(how, dict) or how is None else how.to_dict()):
        found["quantised"] = quantised
    if on := [*(getattr(model, "peft_config", None) or ())]:
        found["adapters"] = found.get("adapters", on)
    return found | {"dtype": str(model.dtype).removeprefix("torch.")}
