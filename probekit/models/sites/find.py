"""Where a model's sites are, and how its blocks compute: found in one recorded forward pass.

What transformers declares about its modules (``_can_record_outputs``) and their structure give candidates; a candidate
is taken if its identity holds. Names of models are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from probekit.models.sites.errors import TOLERANCE, sum_error
from probekit.models.sites.heads import Heads, find_heads
from probekit.models.sites.projections import inputs, is_norm, outputs
from probekit.models.sites.recording import Call, Recording
from probekit.models.sites.taps import Tap
from probekit.sites import FINAL_NORM, Site


@dataclass(frozen=True, slots=True)
class Additions:
    """The two additions of a block.

    Attributes
    ----------
    attention, mlp : Call
        The modules that return what is added.
    middle : tuple of (Call, bool) or None
        The module that returns (True) or reads (False) the stream between the two; None in a parallel block.
    norms : tuple of (Call, Call) or None
        The norms behind the two additions (BERT); None if the stream itself is not normed.
    cross : Call or None
        In a decoder that reads an encoder: the module that returns what the cross-attention adds.
    between : tuple of (Call, bool) or None
        There: the module that reads or returns the stream between the two attentions.
    """

    attention: Call
    mlp: Call
    middle: tuple[Call, bool] | None
    norms: tuple[Call, Call] | None = None
    cross: Call | None = None
    between: tuple[Call, bool] | None = None


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether both are tensors with the same bits."""
    return one is not None and other is not None and one.shape == other.shape and torch.equal(one, other)


def first_equal(calls: Sequence[Call], value: torch.Tensor | None) -> Call | None:
    """The first call that returns ``value``: of a module, its dropout and what wraps both, the innermost."""
    return next((call for call in calls if same(call.returned, value)), None)


def find_additions(calls: Sequence[Call], attention: Sequence[Call], tolerance: float) -> Additions | None:
    """The additions of a block; None if no two outputs add up to its output.

    Parameters
    ----------
    calls : sequence of Call
        The calls in the block, the last of which is the block's.
    attention : sequence of Call
        The calls that may return what the attention adds.
    tolerance : float
        The largest error that counts as equal.
    """
    block = _Laid(calls, attention, tolerance)
    return block.normed() or block.added() or block.crossed()


class _Laid:
    """The calls in a block, and the ways in which they may add up to what it returns."""

    def __init__(self, calls: Sequence[Call], attention: Sequence[Call], tolerance: float) -> None:
        *self.calls, self.block = calls
        self.stream, self.attention, self.tolerance = self.block.given, attention, tolerance
        self.branches = list(self._distinct())

    def _distinct(self) -> Iterator[Call]:
        """The calls that return vectors of the stream's shape, the first of those that return the same."""
        seen: list[torch.Tensor] = []
        for call in self.calls:
            if call.returned is None or self.stream is None or call.returned.shape != self.stream.shape:
                continue
            if not any(same(call.returned, other) for other in (*seen, self.stream)):
                seen.append(call.returned)
                yield call

    def added(self) -> Additions | None:
        """Both are added to a stream that is not normed: GPT-2, Llama, Gemma, OLMo-2, T5; parallel: GPT-NeoX."""
        for one in self.attention:
            for other in self.branches:
                if other is not one and self._is_sum(self.block.returned, self.stream, one.returned, other.returned):
                    return Additions(one, other, self._middle(self.stream, one.returned))
        return None

    def crossed(self) -> Additions | None:
        """Self-attention, cross-attention and MLP are added in turn, each stream in between is read: T5's decoder."""
        for one in self.attention:
            if (between := self._middle(self.stream, one.returned)) is None:
                continue
            for cross in (call for call in self.branches if call is not one):
                terms = (self.stream, one.returned, cross.returned)
                middle = self._middle(*terms)
                for other in self.branches if middle is not None else ():
                    new = other is not one and other is not cross
                    if new and self._is_sum(self.block.returned, *terms, other.returned):
                        return Additions(one, other, middle, cross=cross, between=between)
        return None

    def normed(self) -> Additions | None:
        """A norm follows each addition: BERT and its kin."""
        norms = [call for call in (*self.calls, self.block) if is_norm(call.module)]
        last = next((call for call in norms if same(call.returned, self.block.returned)), None)
        if last is None:
            return None
        for middle in norms:
            one = next((x for x in self.attention if self._is_sum(middle.given, self.stream, x.returned)), None)
            for other in self.branches if one is not None else ():
                if one is not None and other is not one and self._is_sum(last.given, middle.returned, other.returned):
                    return Additions(one, other, (middle, True), (middle, last))
        return None

    def _middle(self, *terms: torch.Tensor | None) -> tuple[Call, bool] | None:
        """The first module that reads or returns the sum."""
        for call in self.calls:
            for output, tensor in ((False, call.given), (True, call.returned)):
                if self._is_sum(tensor, *terms):
                    return call, output
        return None

    def _is_sum(self, total: torch.Tensor | None, *terms: torch.Tensor | None) -> bool:
        given = [term for term in terms if term is not None]
        if total is None or len(given) < len(terms) or any(term.shape != total.shape for term in given):
            return False
        return sum_error(total, *given) <= self.tolerance


EMBEDDINGS = Site("embeddings")
PARALLEL = (
    "no module reads or returns resid_pre + attn_out_post; in a parallel block, attention and MLP read the same "
    "stream, and there is none between them"
)
NO_SUM = (
    "the attention's output and that of another module do not add up to what the block adds to the stream; perhaps "
    "they are scaled"
)
NO_ATTENTION = "which modules of the block are the attention is neither declared by transformers nor found"
EXPERTS = "no single linear layer writes the MLP's output; in a mixture of experts, each has its own"


@dataclass(slots=True)
class Layout:
    """The modules of a block that its identities are computed with, by their names in the block.

    Attributes
    ----------
    norms : tuple of str or None
        The norms after the two additions to the stream, if each is followed by one (BERT).
    attn_norm, mlp_norm : str or None
        The norm between a branch and the stream (Gemma-2, OLMo-2).
    out, down, router : str or None
        The attention's output projection, the MLP's down projection, the router of a mixture of experts.
    changed_after : bool
        Whether the model changes the stream between this block and the next (DeBERTa-v2's convolution): the next
        block's input is then not this block's output. True of the last block, too, whose output itself is read: that it
        equals itself would prove nothing.
    crossed : bool
        Whether the block also attends to an encoder's output.
    """

    norms: tuple[str, str] | None = None
    attn_norm: str | None = None
    mlp_norm: str | None = None
    out: str | None = None
    down: str | None = None
    router: str | None = None
    changed_after: bool = False
    crossed: bool = False


@dataclass(slots=True)
class Found:
    """The sites of a model.

    Attributes
    ----------
    blocks : list of nn.Module
        The module that is block 0, 1 …
    layouts : list of Layout
        How each computes.
    taps : dict of Site to Tap
        Where each site is read. Layers of the residual stream, ``resid_pre`` and ``final_norm`` need no tap.
    final_norm : str or None
        The module after the last block that returns the last hidden state.
    missing : dict of Site to str
        Why a site was not found.
    """

    blocks: list[nn.Module]
    layouts: list[Layout] = field(default_factory=list)
    taps: dict[Site, Tap] = field(default_factory=dict)
    final_norm: str | None = None
    missing: dict[Site, str] = field(default_factory=dict)


def find_sites(model: Any, recording: Recording) -> Found:
    """The sites of a model.

    Parameters
    ----------
    model : Any
        The transformers model.
    recording : Recording
        A forward pass of a few random pieces.
    """
    found = Found(recording.modules)
    for b, calls in enumerate(recording.blocks):
        found.layouts.append(_Block(found, b, calls).find(model, recording.attentions[b]))
        if b:
            found.layouts[b - 1].changed_after = not same(recording.blocks[b - 1][-1].returned, calls[-1].given)
    found.layouts[-1].changed_after = True
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:
        table = None
    path = next((name for name, module in model.named_modules() if module is table), None)
    if path is not None:
        found.taps[EMBEDDINGS] = Tap(None, path)
    else:
        found.missing[EMBEDDINGS] = "the model does not say which module is its embedding matrix"
    stream = recording.blocks[-1][-1].returned
    norm = next((c for c in recording.after if same(c.given, stream) and same(c.returned, recording.last)), None)
    found.final_norm = None if norm is None or same(stream, recording.last) else norm.path
    if same(stream, recording.last):
        found.missing[FINAL_NORM] = "the last hidden state is the stream itself: no norm follows the last block"
    return found


def declared(model: Any, output: str) -> tuple[type[nn.Module], ...]:
    """The classes whose modules return ``output`` ("attentions", "router_logits") by transformers' own declaration."""
    given = (getattr(model, "_can_record_outputs", None) or {}).get(output, ())
    targets = (getattr(part, "target_class", part) for part in (given if isinstance(given, list) else [given]))
    return tuple(target for target in targets if isinstance(target, type))


class _Block:
    """The search in one block."""

    def __init__(self, found: Found, number: int, calls: list[Call]) -> None:
        self.found, self.number, self.calls, self.layout = found, number, calls, Layout()
        precision = torch.float32 if calls[-1].returned is None else calls[-1].returned.dtype
        self.tolerance = TOLERANCE[precision]

    def find(self, model: Any, probabilities: torch.Tensor | None) -> Layout:
        inside = self.declared_attention(model)
        heads = None
        if probabilities is not None:
            heads = find_heads(inside, probabilities, self.tolerance)
            heads = heads or find_heads(self.calls, probabilities, self.tolerance)
        candidates = inside if heads is None else self.attention_outputs(heads)
        sums = find_additions(self.calls, candidates, self.tolerance)
        self.heads(heads, probabilities is not None)
        if sums is None:
            for name in ("attn_out", "attn_out_post", "resid_mid", "mlp_act", "mlp_out", "mlp_out_post"):
                self.lacks(name, NO_SUM if candidates else NO_ATTENTION)
        else:
            self.attention(sums, heads)
            self.mlp(sums)
        self.router(model)
        return self.layout

    def declared_attention(self, model: Any) -> list[Call]:
        """The calls in the modules that transformers declares as the attention."""
        classes = declared(model, "attentions")
        paths = [call.path for call in self.calls if isinstance(call.module, classes)]
        return [call for call in self.calls if any(f"{call.path}.".startswith(f"{path}.") for path in paths)]

    def attention_outputs(self, heads: Heads) -> list[Call]:
        """The calls that may return what the attention adds: what its projection writes, or what follows it."""
        inside, written = self.calls[:-1], heads.projection.returned
        own = [c for c in inside if same(c.returned, written) or (is_norm(c.module) and same(c.given, written))]
        return own + inside[inside.index(heads.projection) + 1 :]

    def tap(self, name: str, call: Call, *, output: bool = True, columns: tuple[int, ...] | None = None) -> None:
        self.found.taps[Site(name, self.number)] = Tap(self.number, call.path, output, columns)

    def lacks(self, name: str, why: str) -> None:
        self.found.missing[Site(name, self.number)] = why

    def heads(self, heads: Heads | None, known: bool) -> None:
        if heads is not None:
            self.tap("z", heads.projection, output=False)
            everything = heads.columns == tuple(range(outputs(heads.values.module)))
            self.tap("value", heads.values, columns=None if everything else heads.columns)
            return
        why = (
            "no linear layer reads the product of the attention probabilities and another layer's output"
            if known
            else "the model returns no attention probabilities to check it by"
        )
        for name in ("z", "value", "attn_probs"):
            self.lacks(name, why)

    def attention(self, sums: Additions, heads: Heads | None) -> None:
        self.tap("attn_out_post", sums.attention)
        raw, self.layout.attn_norm = self.raw("attn", sums.attention)
        self.tap("attn_out", raw)
        if raw is heads.projection if heads is not None else inputs(raw.module):
            self.layout.out = raw.path
            self.tap("z", raw, output=False)
            self.found.missing.pop(Site("z", self.number), None)
        if sums.norms is not None:
            self.layout.norms = (sums.norms[0].path, sums.norms[1].path)
        if sums.cross is not None and sums.between is not None:
            self.layout.crossed = True
            self.tap("resid_cross", sums.between[0], output=sums.between[1])
            self.tap("cross_out_post", sums.cross)
        if sums.middle is None:
            self.lacks("resid_mid", PARALLEL)
        else:
            self.tap("resid_mid", sums.middle[0], output=sums.middle[1])

    def mlp(self, sums: Additions) -> None:
        self.tap("mlp_out_post", sums.mlp)
        raw, self.layout.mlp_norm = self.raw("mlp", sums.mlp)
        self.tap("mlp_out", raw)
        if inputs(raw.module) and raw.given is not None:
            self.layout.down = raw.path
            self.tap("mlp_act", raw, output=False)
        else:
            self.lacks("mlp_act", EXPERTS)

    def raw(self, branch: str, call: Call) -> tuple[Call, str | None]:
        """The call that returns a branch before its norm, and the norm; the call itself if there is no norm."""
        if not is_norm(call.module):
            return call, None
        before = first_equal(self.calls, call.given)
        if before is None:
            return call, None
        self.tap(f"{branch}_normed", call, output=False)
        return before, call.path

    def router(self, model: Any) -> None:
        """The router: declared by transformers, or a matrix with one row for each expert."""
        classes, config = declared(model, "router_logits"), model.config
        experts = {getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts")}
        attention = self.declared_attention(model)
        for call in self.calls if classes or experts - {None} else ():
            if call in attention:  # a gate of heads, of which there may be as many as experts
                continue
            weight = getattr(call.module, "weight", None)
            shaped = weight is not None and weight.ndim == 2 and len(weight) in experts
            if call.returned is not None and (isinstance(call.module, classes) if classes else shaped):
                self.layout.router = call.path
                self.tap("router_logits", call)
                self.tap("router_in", call, output=False)
                return
        mixture = bool(classes) or bool(experts - {None})
        self.lacks("router_logits", f"{'this block' if mixture else 'the model'} has no router of experts")
