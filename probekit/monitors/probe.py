"""A probe that is kept: its weights, and a card of all that decides what its scores mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import expit

from probekit.errors import UsageError
from probekit.monitors.format import write_folder
from probekit.probes.kept import Weights
from probekit.probes.solvers.attention import Sequences
from probekit.probes.spans import Spans

if TYPE_CHECKING:
    import pandas as pd

    from probekit.monitors.alarm import Alarm
    from probekit.monitors.watch import Watch

NUMBERS, LABELS = ("regression", "multi-output"), ("multi-label", "multi-output")
"""Kinds of tasks whose outputs are numbers, and those with several labels or numbers of a text."""

OF_RATE = ("threshold", "rate", "rate_low", "rate_high", "seen_in_train")
"""What is said beside a score of the operating point for a rate."""


@dataclass(frozen=True, eq=False, slots=True)
class Probe:
    """A fitted probe of one layer.

    Attributes
    ----------
    weights : Weights
        Its arrays.
    card : mapping
        JSON: ``layer``, ``estimator``, ``penalty``, ``kind``, ``classes``, ``encoder`` (model, tokenizer, precision,
        pooling … of the vectors), ``vectors`` (words, spans, pairs), ``train`` and ``dev`` (task, split, examples,
        groups, digest), ``metrics`` (with intervals and permuted labels), ``temperature``, ``reliability``,
        ``thresholds``, ``auroc`` and ``scores_on``; see *Kept probes* in the file formats.

    Examples
    --------
    >>> result = probekit.probe("cola.train.h5", "cola.dev.h5")  # doctest: +SKIP
    >>> probe = result.probe(layer=4)  # doctest: +SKIP
    >>> probe.save("cola-4")  # doctest: +SKIP
    >>> probekit.load_probe("cola-4").score(["The cat sat.", "Cat the sat."])  # doctest: +SKIP
    """

    weights: Weights
    card: Mapping[str, Any]

    @property
    def layer(self) -> str:
        """The layer or site that it reads."""
        return str(self.card["layer"])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, labels or numbers."""
        return tuple(self.card["classes"])

    @property
    def kind(self) -> str:
        """The type of the task."""
        return str(self.card["kind"])

    @property
    def two_classes(self) -> bool:
        """Whether an example is of one of two classes, so that one score says all."""
        return len(self.classes) == 2 and self.kind not in (*NUMBERS, *LABELS)

    @property
    def scores_pieces(self) -> bool:
        """Whether single pieces have one score: of linear probes and monitors of two classes or a number."""
        single = self.two_classes or (self.kind in NUMBERS and self.kind not in LABELS)
        return self.weights.form in ("linear", "monitor") and single

    @property
    def direction(self) -> np.ndarray:
        """float32 (K, d), or (d,) for two classes or a number: the gradient of the logits, of length as fitted.

        Raises
        ------
        UsageError
            If the logits are no linear function of the vectors.
        """
        weights = self.weights.arrays.get("weight")
        if weights is None:
            raise UsageError(f"a probe of the form {self.weights.form} has no direction; fit a linear one.")
        if self.two_classes and len(weights) == 2:
            return weights[1] - weights[0]
        return weights[0] if len(weights) == 1 else weights

    def check_scores(self) -> None:
        """Raise UsageError if it scores no texts: edge and structural probes.

        Edge probes read the pieces of spans, structural probes words: both take arrays.
        """
        if self.weights.of_spans or self.weights.form == "structural":
            how = "probe.predict_proba(x, spans)" if self.weights.of_spans else "probe.distances(x)"
            kind = "an edge" if self.weights.of_spans else "a structural"
            raise UsageError(f"{kind} probe does not score texts or caches; in Python, {how} takes their vectors.")

    @property
    def vectors(self) -> Mapping[str, Any]:
        """What a row of its vectors is, as the card says: ``representation``, ``words``, ``spans`` …

        Raises
        ------
        UsageError
            If the card does not say it.
        """
        read: Mapping[str, Any] = self.card.get("vectors", {})
        if missing := [name for name in ("representation", "words", "spans") if name not in read]:
            raise UsageError(f"the probe's card lacks {', '.join(missing)} in vectors, so that no cache can be read.")
        return read

    def map(self, x: np.ndarray, of: Literal["distance", "depth"] = "distance") -> np.ndarray:
        """Vectors (n, d) under the map of a structural probe, float32 (n, rank).

        Raises
        ------
        UsageError
            For another probe, and vectors of another width.
        """
        return self.weights.mapped(x, of).astype(np.float32)

    def distances(self, x: np.ndarray) -> np.ndarray:
        """The distances of the words of one sentence in its tree, as a structural probe predicts them, float32 (n, n).

        Parameters
        ----------
        x : np.ndarray
            Float (n, d), for each word the mean of its pieces.
        """
        z = self.weights.mapped(x, "distance")
        square = (z * z).sum(1)
        return np.maximum(square[:, None] + square - 2 * z @ z.T, 0).astype(np.float32)

    def depths(self, x: np.ndarray) -> np.ndarray:
        """The depths of words, as a structural probe predicts them, float32 (n,); ``x`` as for :meth:`distances`."""
        return (self.weights.mapped(x, "depth") ** 2).sum(1).astype(np.float32)

    def decision_function(self, x: Any, spans: Any = None, length: Any = None) -> np.ndarray:
        """The logit of class 1 against class 0, (n,); of more classes, labels or numbers their logits, (n, K).

        Parameters
        ----------
        x : np.ndarray
            Float (n, d), vectors of the probe's layer; of attention probes and monitors the pieces (t, d) of n texts,
            one text after another; of edge probes the pieces (t, d) that ``spans`` names.
        spans : np.ndarray, optional
            Of edge probes: int (n, k, 2), the first and last piece of each of the k spans of a target.
        length : np.ndarray, optional
            Of attention probes and monitors: int (n,), how many pieces each text has.

        Raises
        ------
        UsageError
            If the vectors are no matrix, or of another width, or spans or lengths do not fit them.
        NonFiniteError
            If they contain NaN or infinity.

        Examples
        --------
        >>> probe.decision_function(x)  # doctest: +SKIP
        >>> monitor.decision_function(pieces, length=[12, 30])  # pieces (42, d)  # doctest: +SKIP
        """
        return self.scores(self._logits(x, spans, length))

    def _logits(self, x: Any, spans: Any, length: Any) -> np.ndarray:
        x = x if hasattr(x, "shape") else np.asarray(x)
        if spans is not None:
            x = Spans.of(x, spans)
        elif length is not None:
            x = Sequences.of(x, length)
        return self.weights.logits(x)

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """:meth:`decision_function` of the weights' logits (n, K)."""
        if self.kind in NUMBERS or not self.two_classes:
            return logits[:, 0] if logits.shape[1] == 1 else logits
        if logits.shape[1] == 1:
            return logits[:, 0]
        log_p = self.weights.log_proba(logits)
        return log_p[:, 1] - log_p[:, 0]

    def predict_proba(self, x: Any, spans: Any = None, length: Any = None) -> np.ndarray:
        """The probabilities of classes, float32 (n, classes), or of each label, (n, labels); UsageError for numbers.

        Arguments as for :meth:`decision_function`. Each label of an edge probe has a probability of its own; they do
        not sum to 1.
        """
        return self.proba(self._logits(x, spans, length))

    def proba(self, logits: np.ndarray) -> np.ndarray:
        """:meth:`predict_proba` of the weights' logits (n, K)."""
        if self.kind in NUMBERS:
            raise UsageError("a probe of numbers has no probabilities; predict gives its numbers.")
        if self.kind in LABELS:
            return expit(logits)
        return self.weights.proba(logits)

    def predict(self, x: Any, spans: Any = None, length: Any = None) -> np.ndarray:
        """The likeliest class by number, int (n,); 0 or 1 for each label, (n, labels); numbers as float32."""
        return self.predicted(self._logits(x, spans, length))

    def predicted(self, logits: np.ndarray) -> np.ndarray:
        """:meth:`predict` of the weights' logits (n, K)."""
        if self.kind in NUMBERS:
            return logits if self.kind in LABELS else logits[:, 0]
        if self.kind in LABELS:
            return (logits > 0).astype(np.int64)
        return self.weights.log_proba(logits).argmax(1)

    def table(self, logits: np.ndarray) -> pd.DataFrame:
        """Logits (n, K) as columns: score, class and probability, or those of each class, label or number."""
        import pandas as pd

        if self.kind in NUMBERS:
            names = self.classes if self.kind in LABELS else ("score",)
            return pd.DataFrame(self.scores(logits).reshape(len(logits), -1), columns=list(names))
        proba = self.proba(logits)
        each = {f"p({name})": proba[:, k] for k, name in enumerate(self.classes)}
        if self.kind in LABELS:
            return pd.DataFrame(each)
        named = np.array(self.classes)[self.predicted(logits)]
        if self.two_classes:
            last = list(each)[1]
            return pd.DataFrame({"score": self.scores(logits), "class": named, last: each[last]})
        return pd.DataFrame({"class": named, **each})

    def operating_point(self, rate: float) -> Mapping[str, Any]:
        """What the card says of a rate of false positives: ``threshold``, the rate's interval, the recall at it.

        The keys are ``rate``, ``threshold``, ``rate_low``, ``rate_high``, ``recall``, ``recall_low``, ``recall_high``,
        ``level``, and ``seen_in_train``: how many of the examples of dev, on which they were measured, share a text or
        a group with train (None if it is not known). Of new texts, more may be above the threshold then.

        Raises
        ------
        UsageError
            If the card has no threshold for this rate; the message says why.
        """
        known = {one["rate"]: one for one in self.card.get("thresholds", ())}
        if not known:
            why = "" if self.two_classes else f", which are of probes of two classes; this one is of {self._kind}"
            raise UsageError(f"the probe's card has no thresholds{why}.")
        if rate not in known:
            rates = ", ".join(f"{one:g}" for one in known)
            raise UsageError(f"the probe's card has thresholds for the rates {rates}, not {rate:g}; take one of these.")
        if known[rate]["threshold"] is None:
            raise UsageError(f"there is no threshold for a rate of {rate:g}: {known[rate].get('why')}.")
        on = self.card.get("scores_on", self.card.get("dev", {}))  # cards of before have all of dev
        return {**known[rate], "seen_in_train": on.get("seen_in_train")}

    @property
    def _kind(self) -> str:
        """What it says of a text, in words."""
        what = {"regression": "a number", "multi-output": "several numbers", "multi-label": "several labels"}
        return what.get(self.kind, f"{len(self.classes)} classes")

    def threshold(self, rate: float) -> float:
        """The score above which at most ``rate`` of the evaluated negatives lay; see :meth:`operating_point`."""
        return float(self.operating_point(rate)["threshold"])

    @property
    def digest(self) -> str:
        """The xxh3 digest (32 hex digits) of what decides its scores: layer, model and arrays."""
        import xxhash

        state = xxhash.xxh3_128(f"{self.layer} {self.card['encoder'].get('weights_digest')}".encode())
        state.update(f"{self.weights.form} {self.weights.scores}".encode())
        for name, array in sorted(self.weights.arrays.items()):
            state.update(f"{name} {array.shape}".encode())
            state.update(np.ascontiguousarray(array).tobytes())
        return str(state.hexdigest())

    def score(self, texts: Any, **options: Any) -> pd.DataFrame:
        """Run the model up to the probe's layer on texts, and score them; see :func:`probekit.apply`."""
        from probekit.monitors.scoring import score_texts

        return score_texts(self, texts, **options)

    def alarm(self, texts: Sequence[Any], **options: Any) -> Alarm:
        """The rule that stops a given share of harmless texts.

        Parameters
        ----------
        texts : sequence
            Harmless texts, of the kind that the model will write; 1 / rate - 1 at least.
        **options
            ``rule`` ("rolling:10"; of a monitor its own), ``rate`` (0.01), ``groups`` of texts that are not
            independent, ``on`` (their name), ``model``, ``device``, ``anyway``.
        """
        from probekit.monitors.alarm import alarm_of

        return alarm_of(self, texts, **options)

    def attach(self, model: Any, *others: Probe, **options: Any) -> Watch:
        """Watch a model of transformers while it writes, with further probes if given; see :class:`Watch`."""
        from probekit.monitors.watch import Watch

        return Watch((self, *others), model, **options)

    def save(self, folder: str | Path) -> Path:
        """Write a folder that :func:`probekit.load_probe`, or numpy and five lines, can read.

        A kept probe of the same layer, model and task is replaced.

        Raises
        ------
        UsageError
            If the folder exists and holds something else, such as probes of other layers, which would be lost; or if
            the card or the arrays are none that could be loaded again.
        """
        return save_probes([self], folder)

    def __repr__(self) -> str:
        model, task = self.card["encoder"].get("model", "?"), self.card["train"].get("task", "?")
        named = f": {', '.join(self.classes)}" if self.classes else ""
        return f"<Probe {self.card['estimator']}, layer {self.layer} of {model}, {task}{named}>"


def save_probes(probes: Sequence[Probe], folder: str | Path) -> Path:
    """Write probes of several layers to one folder; errors as for :meth:`Probe.save`."""
    return write_folder([(probe.card, probe.weights) for probe in probes], Path(folder))
