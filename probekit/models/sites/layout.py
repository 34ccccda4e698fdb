"""How a block adds up: which of its modules' outputs are what attention and MLP add to the residual stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from probekit.models.sites.errors import sum_error
from probekit.models.sites.projections import is_norm
from probekit.models.sites.recording import Call

__all__ = ["Sums", "find_sums", "first_equal", "same"]


@dataclass(frozen=True, slots=True)
class Sums:
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


def find_sums(calls: Sequence[Call], attention: Sequence[Call], tolerance: float) -> Sums | None:
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
    block = _Block(calls, attention, tolerance)
    return block.normed() or block.added() or block.crossed()


class _Block:
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

    def added(self) -> Sums | None:
        """Both are added to a stream that is not normed: GPT-2, Llama, Gemma, OLMo-2, T5; parallel: GPT-NeoX."""
        for one in self.attention:
            for other in self.branches:
                if other is not one and self._is_sum(self.block.returned, self.stream, one.returned, other.returned):
                    return Sums(one, other, self._middle(self.stream, one.returned))
        return None

    def crossed(self) -> Sums | None:
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
                        return Sums(one, other, middle, cross=cross, between=between)
        return None

    def normed(self) -> Sums | None:
        """A norm follows each addition: BERT and its kin."""
        norms = [call for call in (*self.calls, self.block) if is_norm(call.module)]
        last = next((call for call in norms if same(call.returned, self.block.returned)), None)
        if last is None:
            return None
        for middle in norms:
            one = next((x for x in self.attention if self._is_sum(middle.given, self.stream, x.returned)), None)
            for other in self.branches if one is not None else ():
                if one is not None and other is not one and self._is_sum(last.given, middle.returned, other.returned):
                    return Sums(one, other, (middle, True), (middle, last))
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
