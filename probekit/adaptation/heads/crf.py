"""Linear-chain conditional random field (Lafferty, McCallum & Pereira 2001) over tags.

The score of the tags y₁ … y_n of a sentence is start[y₁] + Σ logits[i, yᵢ] + Σ transitions[yᵢ, yᵢ₊₁] + end[y_n];
its probability is proportional to the exponential. Constraints of a tagging scheme, such as that I-PER follows only
B-PER or I-PER, exclude paths in decoding but do not affect the likelihood.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from probekit.adaptation.heads.head import IGNORED
from probekit.errors import UsageError

SCHEMES = {
    "BIO": ("I", "BI", False),
    "IOB1": ("B", "BI", False),
    "BIOUL": ("IL", "BI", True),
    "BIOES": ("IE", "BI", True),
    "BMES": ("ME", "BM", True),
}
"""For each scheme: prefixes that only follow a tag of the same entity, the prefixes of such a tag, and whether an
entity must be closed."""

FORBIDDEN = -10000.0
"""Score of a forbidden transition: finite, so that a sentence without an allowed path gets the least invalid one."""


def scheme_of(labels: Sequence[str]) -> str | None:
    """The scheme of these tags, from their prefixes; None if they are not all ``O`` or ``PREFIX-TYPE``.

    Tags with only B and I are treated as BIO, although IOB1 has the same tags.
    """
    tags = [re.fullmatch(r"([BIULEMS])-.+", label) for label in labels if label != "O"]
    prefixes = {tag[1] if tag else "none" for tag in tags}
    fitting = ("IOB1",) if prefixes == {"I"} else ("BIO", "BIOUL", "BIOES", "BMES")
    return next((scheme for scheme in fitting if prefixes and prefixes <= set(scheme)), None)


def allowed_transitions(scheme: str, labels: Sequence[str]) -> Tensor:
    """bool (k + 2, k + 2): whether the tag of the column may follow that of the row.

    Row k is the start of a sentence, column k + 1 its end.

    Raises
    ------
    UsageError
        For an unknown scheme.
    """
    if scheme not in SCHEMES:
        raise UsageError(f"unknown tagging scheme {scheme!r}; the schemes are {', '.join(SCHEMES)}.")
    inside, before, closed = SCHEMES[scheme]
    tags = [label.partition("-")[::2] for label in labels] + [("O", "")] * 2
    ok = torch.zeros(len(tags), len(tags), dtype=torch.bool)
    for i, (prefix, entity) in enumerate(tags[:-1]):
        for j, (following, same) in enumerate(tags):
            if following in inside:
                ok[i, j] = prefix in before and entity == same
            else:
                ok[i, j] = not (closed and prefix in before)
    ok[:, -2] = ok[-2, -1] = False  # nothing precedes the start, and a sentence has at least one word
    return ok


class CRF(nn.Module):
    """A conditional random field over k tags.

    Attributes
    ----------
    transitions : Parameter
        (k, k), from row to column.
    start_transitions, end_transitions : Parameter
        (k,), absent with ``include_start_end_transitions=False``.
    allowed : Tensor
        Bool (k + 2, k + 2) of :func:`allowed_transitions`, or None.
    """

    allowed: Tensor

    def __init__(self, tags: int, *, allowed: Tensor | None = None, include_start_end_transitions: bool = True) -> None:
        super().__init__()
        self.transitions = nn.Parameter(nn.init.xavier_normal_(torch.empty(tags, tags)))
        self.start_transitions = self.end_transitions = None
        if include_start_end_transitions:
            self.start_transitions = nn.Parameter(torch.randn(tags))
            self.end_transitions = nn.Parameter(torch.randn(tags))
        allowed = torch.ones(tags + 2, tags + 2, dtype=torch.bool) if allowed is None else allowed
        self.register_buffer("allowed", allowed, persistent=False)

    def log_partition(self, logits: Tensor, mask: Tensor, tags: Tensor | None = None) -> Tensor:
        """Float64 (b,): log of the sum of exp(score) over all paths that agree with these tags.

        Parameters
        ----------
        logits : Tensor
            Float (b, t, k).
        mask : Tensor
            Bool (b, t), True for words; False before the last word marks an unknown one.
        tags : Tensor, optional
            int64 (b, t); a word with the tag ``IGNORED`` may have any tag, as may all words without ``tags``. If all
            are given, this is the score of one path.
        """
        if tags is not None:
            logits = self._agreeing(logits, mask, tags)
        wide = torch.float32 if logits.device.type == "mps" else torch.float64  # MPS has no float64
        ends = (self.start_transitions, self.end_transitions)
        start, end = (self.transitions.new_zeros(len(self.transitions)) if e is None else e for e in ends)
        wide_logits = logits.masked_fill(~mask.unsqueeze(-1), 0).transpose(0, 1).to(wide)
        return _LogPartition.apply(wide_logits, self.transitions.to(wide), start.to(wide), end.to(wide), _lengths(mask))

    def log_likelihood(self, logits: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Float32 (b,): log-probability of the tags in nats; words without a tag are summed over all tags.

        (Tsuboi et al. 2008, equation 3.) Shapes as in :meth:`log_partition`.
        """
        # both partitions in one pass: the loop over words costs the same for twice the sentences
        both = torch.cat([self._agreeing(logits, mask, tags), logits])
        given, every = self.log_partition(both, mask.repeat(2, 1)).chunk(2)
        return (given - every).float()

    def loss(self, logits: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Mean of -log-likelihood over the sentences with a tag; 0 if there are none."""
        tagged = (mask & (tags != IGNORED)).any(1)
        return -self.log_likelihood(logits, tags, mask).sum() / tagged.sum().clamp_min(1)  # the others contribute 0

    @torch.no_grad()
    def viterbi(self, logits: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The best allowed path, int64 (b, t) with ``IGNORED`` outside the mask, and its score, float32 (b,)."""
        k, last = len(self.transitions), _lengths(mask) - 1
        scores = torch.zeros(k + 2, k + 2, device=logits.device)
        scores[:k, :k] = self.transitions
        if self.start_transitions is not None and self.end_transitions is not None:
            scores[k, :k], scores[:k, k + 1] = self.start_transitions, self.end_transitions
        scores = scores.where(self.allowed, FORBIDDEN)
        emitted = logits.float().masked_fill(~mask.unsqueeze(-1), 0).transpose(0, 1)
        into = scores[:k, :k].T.contiguous()  # (to, from)
        best, back = [scores[k, :k] + emitted[0]], []
        for emission in emitted[1:]:
            value, index = (best[-1].unsqueeze(1) + into).max(-1)
            best.append(value + emission)
            back.append(index)
        final = torch.stack(best)[last, torch.arange(len(last), device=last.device)] + scores[:k, k + 1]
        score, tag = final.max(-1)
        path, end = [tag], tag
        for i in range(len(back), 0, -1):
            before = back[i - 1].gather(1, path[-1].unsqueeze(1)).squeeze(1)
            path.append(torch.where(i <= last, before, end))  # before its last word, seen from the right
        return torch.stack(path[::-1], 1).masked_fill(~mask, IGNORED), score

    def _agreeing(self, logits: Tensor, mask: Tensor, tags: Tensor) -> Tensor:
        known = (mask & (tags != IGNORED)).unsqueeze(-1)
        other = tags.unsqueeze(-1) != torch.arange(logits.shape[-1], device=tags.device)
        return logits.masked_fill(known & other, -torch.inf)


def _lengths(mask: Tensor) -> Tensor:
    """int64 (b,): words up to the last, at least 1."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1).clamp_min(1)


class _LogPartition(torch.autograd.Function):
    """The forward algorithm; the backward algorithm gives its gradient, the marginals.

    Both use probabilities scaled to sum to 1 at each word (Rabiner 1989, section V.A), so a step is one matrix product.
    In float64 that is accurate for scores that differ by up to 700 nats between tags.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, transitions: Tensor, start: Tensor, end: Tensor, length: Tensor
    ) -> Tensor:  # (t, b, k), (k, k), (k,), (k,), (b,)
        top = logits.amax(-1, keepdim=True)
        emission, step, last = (logits - top).exp_(), (transitions - transitions.max()).exp(), (end - end.max()).exp()
        alpha, scale = torch.empty_like(emission), torch.empty_like(top)
        torch.mul(emission[0], (start - start.max()).exp(), out=alpha[0])
        for i, now in enumerate(alpha):
            if i:
                torch.mm(alpha[i - 1], step, out=now)
                now *= emission[i]
            torch.sum(now, -1, keepdim=True, out=scale[i])
            now /= scale[i]
        row = torch.arange(len(length), device=length.device)
        total = alpha[length - 1, row] @ last
        ctx.save_for_backward(emission.div_(scale), step, last / total.unsqueeze(-1), alpha, length, row)
        inside = torch.arange(len(alpha), device=length.device).unsqueeze(-1) < length
        logs = (scale.log() + top).squeeze(-1).where(inside, 0.0).sum(0) + total.log()
        return logs + (length - 1) * transitions.max() + start.max() + end.max()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        emission, step, last, alpha, length, row = ctx.saved_tensors
        beta, onward = torch.zeros_like(alpha), torch.empty_like(alpha)
        beta[length - 1, row] = last * grad.unsqueeze(-1)
        for i in range(len(alpha) - 1, 0, -1):
            torch.mul(emission[i], beta[i], out=onward[i])
            beta[i - 1].addmm_(onward[i], step.T)
        marginals = alpha * beta
        pairs = step * (alpha[:-1].flatten(0, 1).T @ onward[1:].flatten(0, 1))
        return marginals, pairs, marginals[0].sum(0), marginals[length - 1, row].sum(0), None
