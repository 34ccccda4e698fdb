"""What a fitted probe computes, as a few arrays in the units of the vectors that it reads.

::

    logits = (x - mean) @ weight.T + bias                        a linear probe
    logits = maximum((x - mean) @ w1.T + b1, 0) @ w2.T + b2      mlp

The mean is kept apart from the bias: where a dimension is a thousand times as large as the others, their sum would lose
digits. The scale of the features is part of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.edges.model import EPS
from probekit.probes.solvers._path import blocks
from probekit.probes.solvers.attention import AttentionPath, Sequences, softmax_within, sums_within
from probekit.probes.solvers.ksparse import KSparsePath
from probekit.probes.solvers.logistic import LogisticFit
from probekit.probes.solvers.mass_mean import MassMeanPath
from probekit.probes.solvers.mlp import MLPPath
from probekit.probes.solvers.monitor import MonitorPath
from probekit.probes.solvers.scores import Score
from probekit.probes.spans import Spans
from probekit.probes.trees.fit import StructuralProbe

ARRAYS = {
    "linear": ("mean", "weight", "bias"),
    "mlp": ("mean", "w1", "b1", "w2", "b2"),
    "attention": ("mean", "query", "value", "bias"),
    "monitor": ("mean", "weight", "bias", "slope", "shift"),
    "edge": ("mean", "project", "project_bias", "score", "w1", "b1", "w2", "b2"),
    "edge-linear": ("mean", "score", "weight", "bias"),
    "structural": ("mean", "distance", "depth"),
}
"""The arrays of each form, all float32; ``linear`` may have ``absent`` beside them."""
BLOCK = 1 << 25
"""Bytes of vectors, or hidden units, that are scored at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A probe of one target.

    Attributes
    ----------
    form : str
        A key of :data:`ARRAYS`.
    arrays : mapping of str to np.ndarray
        ``mean`` (d,), ``weight`` (K, d) and ``bias`` (K,), or those of the form. K is 1 for two classes and for a
        number. ``absent`` (K,), if there, is the probability of a class that train lacks, and 0 for others.
    scores : str
        Of a monitor, how the scores of pieces become that of a text.
    """

    form: str
    arrays: Mapping[str, np.ndarray]
    scores: str = ""

    @property
    def width(self) -> int:
        """The number of dimensions that it reads."""
        return len(self.arrays["mean"])

    @property
    def outputs(self) -> int:
        """K, the number of logits; 0 for a structural probe."""
        last = self.arrays.get("b2", self.arrays.get("bias"))
        return 0 if last is None else last.size

    @property
    def block(self) -> int:
        """How many vectors are scored at a time: of ``BLOCK`` bytes in float64."""
        return max(1, BLOCK // (8 * max(self.width, self.arrays.get("b1", np.empty(0)).size)))

    @property
    def of_spans(self) -> bool:
        """Whether it reads the pieces of spans."""
        return self.form in ("edge", "edge-linear")

    @property
    def by_piece(self) -> bool:
        """Whether it reads all pieces of a text."""
        return self.form in ("attention", "monitor")

    def logits(self, x: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """The logits, or the numbers that a ridge regression predicts, float32 (n, K).

        Sums are in float64, so that an example has the same bits whatever stands beside it.

        Parameters
        ----------
        x : np.ndarray, Sequences or Spans
            Float (n, d); of ``attention`` and ``monitor``, the pieces of n texts; of edge probes, those of spans.
        rows : np.ndarray, optional
            Int, some of the n; by default all.

        Raises
        ------
        NonFiniteError
            If a vector contains NaN or infinity.
        UsageError
            If they are no matrix, or of another width, or a text has no piece; for edge probes without spans,
            attention probes and monitors without texts, and structural probes, which have no logits.
        """
        x = x if hasattr(x, "shape") else np.asarray(x)
        if self.form == "structural":
            raise UsageError("a structural probe has no logits; it gives the distances and depths of words.")
        if self.of_spans != isinstance(x, Spans):
            reads = "the pieces of spans; give spans" if self.of_spans else "no spans; leave them out"
            raise UsageError(f"a probe of the form {self.form} reads {reads}.")
        if self.by_piece != isinstance(x, Sequences):
            reads = (
                "all pieces of texts; give length, how many each text has" if self.by_piece else "no pieces of texts"
            )
            raise UsageError(f"a probe of the form {self.form} reads {reads}.")
        if self.of_spans and x.first.shape[1] != len(self.arrays["score"]):
            raise UsageError(f"the probe reads {len(self.arrays['score'])} spans of a target, not {x.first.shape[1]}.")
        if len(x.shape) != 2:
            raise UsageError(f"the probe reads vectors (n, {self.width}), one a row; these are {tuple(x.shape)}.")
        if x.shape[1] != self.width:
            raise UsageError(f"the probe reads vectors of {self.width} dimensions; these have {x.shape[-1]}.")
        with np.errstate(invalid="ignore", over="ignore"):  # the error is raised below
            rows = np.arange(x.shape[0]) if rows is None else rows
            parts = [self._of_block(part) for part in _parts(x, rows, self.block)]
        found = np.concatenate(parts) if parts else np.empty((0, self.outputs))
        if not np.isfinite(found).all():
            raise NonFiniteError("the vectors contain NaN or infinity.")
        return found.astype(np.float32)

    def _of_block(self, x: Any) -> np.ndarray:
        arrays = {name: array.astype(np.float64) for name, array in self.arrays.items()}
        if self.of_spans:
            return self._of_spans(x, arrays)
        centred = self._centred(x)
        if self.form == "mlp":
            return np.maximum(centred @ arrays["w1"].T + arrays["b1"], 0) @ arrays["w2"].T + arrays["b2"]
        if self.form == "attention":
            weight = softmax_within(centred @ arrays["query"].T, x.length)
            return sums_within(weight * (centred @ arrays["value"].T), x.length) + arrays["bias"]
        score = centred @ arrays["weight"].T + arrays["bias"]
        if self.form == "linear":
            return score
        return Score.parse(self.scores).of(score, x.length) * arrays["slope"] + arrays["shift"]

    def _of_spans(self, x: Spans, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """The pieces of each span are projected and pooled by the softmax of their scores; the spans stand side by side
        (Tenney et al. 2019, section 3.1)."""
        pooled = []
        for k, score in enumerate(arrays["score"]):
            pieces, length = x.pieces(k)
            z = self._centred(pieces)
            if "project" in arrays:
                z = z @ arrays["project"][k].T + arrays["project_bias"][k]
            pooled.append(sums_within(softmax_within((z @ score)[:, None], length) * z, length))
        beside = np.concatenate(pooled, 1)
        if self.form == "edge-linear":
            linear: np.ndarray = beside @ arrays["weight"].T + arrays["bias"]
            return linear
        hidden = np.tanh(beside @ arrays["w1"].T + arrays["b1"])
        hidden -= hidden.mean(1, keepdims=True)
        hidden /= np.sqrt(hidden.var(1, keepdims=True) + EPS)
        logits: np.ndarray = hidden @ arrays["w2"].T + arrays["b2"]
        return logits

    def mapped(self, x: np.ndarray, of: str) -> np.ndarray:
        """Vectors (n, d) under the map of a structural probe, float64 (n, rank): ``of`` is "distance" or "depth".

        Raises
        ------
        NonFiniteError
            If a vector contains NaN or infinity.
        UsageError
            For another probe, and vectors of another width.
        """
        if self.form != "structural" or of not in ("distance", "depth"):
            raise UsageError("a structural probe has the maps distance and depth; this is another probe, or map.")
        if x.ndim != 2 or x.shape[1] != self.width:
            raise UsageError(f"the probe reads vectors (n, {self.width}); these are {x.shape}.")
        if not np.isfinite(x).all():
            raise NonFiniteError("the vectors contain NaN or infinity.")
        found: np.ndarray = self._centred(x) @ self.arrays[of].T.astype(np.float64)
        return found

    def _centred(self, x: Any) -> np.ndarray:
        values = x.pieces() if isinstance(x, Sequences) else x
        centred: np.ndarray = np.asarray(values, dtype=np.float64) - self.arrays["mean"]
        return centred

    def of_pieces(self, x: np.ndarray) -> np.ndarray:
        """The logits of single pieces, float32 (t, K), of a linear probe or a monitor; pieces are float (t, d)."""
        if self.form not in ("linear", "monitor"):
            raise UsageError(f"a probe of the form {self.form} has no score of single pieces.")
        weight, bias = self.arrays["weight"], self.arrays["bias"]
        parts = [self._centred(x[at]) @ weight.T + bias for at in blocks(len(x), self.block)]
        return np.concatenate(parts or [np.empty((0, self.outputs))]).astype(np.float32)

    def log_proba(self, logits: np.ndarray) -> np.ndarray:
        """Natural logarithms of the probabilities of classes, float32 (n, 2 or K)."""
        if logits.shape[1] == 1:
            return np.concatenate([log_expit(-logits), log_expit(logits)], 1)
        absent = self.arrays.get("absent")
        if absent is None:
            return log_softmax(logits, 1)
        present = log_softmax(np.where(absent > 0, -np.inf, logits), 1) + np.log1p(-absent.sum())
        return np.where(absent > 0, np.log(np.where(absent > 0, absent, 1)), present).astype(np.float32)

    def proba(self, logits: np.ndarray) -> np.ndarray:
        """The probabilities of classes, float32 (n, 2 or K); each label of an edge probe has its own sigmoid."""
        if self.of_spans:
            return expit(logits)
        if logits.shape[1] == 1:
            return np.concatenate([expit(-logits), expit(logits)], 1)
        return np.exp(self.log_proba(logits))


def _parts(x: Any, rows: np.ndarray, size: int) -> Iterator[Any]:
    if isinstance(x, Spans):
        targets = x.at(rows)
        return (targets.at(at) for at in targets.blocks(size))
    if isinstance(x, Sequences):
        some = x.at(rows)
        if (some.length < 1).any():
            raise UsageError(f"text {int((some.length < 1).argmax())} has no pieces; this probe needs one at least.")
        return (some.at(at) for at in some.blocks(size))
    return (x[rows[at]] for at in blocks(len(rows), size))


def weights_of(fitted: Any, target: int = 0) -> Weights:
    """The weights of one target of probes that were fitted with one setting each.

    Parameters
    ----------
    fitted : LogisticFit, Ridge or Paths
        As :func:`probekit.probes.protocol.selection.select` returns them.
    target : int, default 0
        The number of the label set; 0 is gold.
    """
    if isinstance(fitted, LogisticFit) or hasattr(fitted, "fit"):
        fit = getattr(fitted, "fit", fitted)
        return _weights("linear", mean=fit.centre, weight=fit.weights[target, 0], bias=fit.intercepts[target, 0])
    at, path = next((at, path) for at, path in fitted.members if target in at)
    i = int(np.flatnonzero(at == target)[0])
    if isinstance(path, MonitorPath):
        one = {name: getattr(path, name)[i : i + 1] for name in ("weights", "intercept", "slope", "shift")}
        arrays = {"weight": one["weights"], "bias": one["intercept"], "slope": one["slope"], "shift": one["shift"]}
        return _weights("monitor", mean=np.zeros(path.weights.shape[1]), scores=str(path.score), **arrays)
    if isinstance(path, AttentionPath):
        query, value = (part[i, 0] * path.scale for part in (path.query, path.value))
        return _weights("attention", mean=path.mean, query=query, value=value, bias=path.bias[i, 0])
    if isinstance(path, MLPPath):
        w1 = path.w1[i, 0] * fitted.scale
        return _weights("mlp", mean=fitted.mean, w1=w1, b1=path.b1[i, 0], w2=path.w2[i, 0], b2=path.b2[i, 0])
    return _of_classes(path, i, fitted.mean, fitted.scale)


def linear(mean: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Weights:
    """A linear probe of vectors (n, d): mean (d,), weight (K, d), bias (K,)."""
    return _weights("linear", mean=mean, weight=weight, bias=bias)


def of_edges(arrays: Mapping[str, np.ndarray], mean: np.ndarray, scale: np.ndarray) -> Weights:
    """The weights of an edge probe of one layer.

    Parameters
    ----------
    arrays : mapping of str to np.ndarray
        As :func:`probekit.probes.edges.model.first_weights` names them, of one probe.
    mean, scale : np.ndarray
        (d,): vectors have the mean taken away, and are divided by the scale, before the probe reads them.
    """
    at = range(sum(name.startswith("score") for name in arrays))
    score = np.stack([arrays[f"score{k}"] for k in at])
    out, bias = arrays["out"].T, arrays["out_bias"]
    if "hidden" not in arrays:
        weight = out / np.tile(scale, len(at))
        return _weights("edge-linear", mean=mean, score=score / scale, weight=weight, bias=bias)
    return _weights(
        "edge", mean=mean, score=score, w1=arrays["hidden"].T, b1=arrays["hidden_bias"],
        project=np.stack([(arrays[f"project{k}"] / scale[:, None]).T for k in at]),
        project_bias=np.stack([arrays[f"project{k}_bias"] for k in at]),
        w2=out * arrays["gain"], b2=bias + out @ arrays["shift"],
    )  # fmt: skip


def of_trees(distance: StructuralProbe, depth: StructuralProbe) -> Weights:
    """The weights of two structural probes of one layer: their maps (rank, d)."""
    return _weights("structural", mean=distance.centre, distance=distance.projection.T, depth=depth.projection.T)


def stacked(parts: Sequence[Weights | float]) -> Weights | None:
    """The weights of several labels or numbers as one linear probe, an output for each; None if one is not linear.

    Parameters
    ----------
    parts : sequence of Weights or float
        Of one layer; a number is the constant logit, or value, of a label that could not be fitted.
    """
    fitted = [part for part in parts if isinstance(part, Weights)]
    if any(part.form != "linear" for part in fitted):
        return None
    mean = fitted[0].arrays["mean"]
    lines = [part if isinstance(part, Weights) else None for part in parts]
    weight = [np.zeros(len(mean)) if one is None else _line(one.arrays["weight"]) for one in lines]
    bias = [part if not isinstance(part, Weights) else _line(part.arrays["bias"]) for part in parts]
    return _weights("linear", mean=mean, weight=np.stack(weight), bias=np.array(bias))


def one_line(weights: Weights) -> Weights:
    """A linear probe of two classes, or a monitor, with one logit: class 1 against class 0."""
    if weights.outputs == 1:
        return weights
    arrays = {name: weights.arrays[name] for name in ("mean",)}
    arrays |= {name: _line(weights.arrays[name])[None] for name in ("weight", "bias")}
    return Weights(weights.form, arrays, weights.scores)


def _line(array: np.ndarray) -> np.ndarray:
    """The row of class 1 against class 0."""
    return array[0] if len(array) == 1 else array[1] - array[0]


def _of_classes(path: MassMeanPath | KSparsePath, i: int, mean: np.ndarray, scale: np.ndarray) -> Weights:
    """A logit of each class, and the probability of those that train lacks."""
    coef = path.coef[i, 0]
    if isinstance(path, KSparsePath):
        coef = np.zeros((len(coef), len(scale)), dtype=np.float32)
        coef[:, path.dimensions[i]] = path.coef[i, 0]
    arrays = {"mean": mean, "weight": coef * scale, "bias": path.intercept[i, 0]}
    if (absent := path.absent[i]).any():
        arrays |= {"absent": np.where(absent, 0.5 / (path.n[i] + 0.5 * absent.sum()), 0)}
    return _weights("linear", **arrays)


def _weights(form: str, scores: str = "", **arrays: np.ndarray) -> Weights:
    return Weights(
        form, {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in arrays.items()}, scores
    )
