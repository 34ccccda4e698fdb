"""A probe that is kept: its weights, and a card of all that decides what its scores mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.monitors.format import write_folder
from probekit.probes.kept import Weights

if TYPE_CHECKING:
    import pandas as pd

    from probekit.monitors.alarm import Alarm
    from probekit.monitors.watch import Watch

NUMBERS, LABELS = ("regression", "multi-output"), ("multi-label", "multi-output")
"""Kinds of tasks whose outputs are numbers, and those with several labels or numbers of a text."""


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
        groups, digest), ``metrics`` (with intervals and permuted labels), ``temperature``, ``reliability`` and
        ``thresholds``; see *Kept probes* in the file formats.

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

    def decision_function(self, x: Any) -> np.ndarray:
        """The logit of class 1 against class 0, (n,); of more classes, labels or numbers their logits, (n, K).

        Parameters
        ----------
        x : np.ndarray
            Float (n, d), vectors of the probe's layer; of attention probes and monitors, the pieces of n texts.
        """
        return self.scores(self.weights.logits(x))

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """:meth:`decision_function` of the weights' logits (n, K)."""
        if self.kind in NUMBERS or not self.two_classes:
            return logits[:, 0] if logits.shape[1] == 1 else logits
        if logits.shape[1] == 1:
            return logits[:, 0]
        log_p = self.weights.log_proba(logits)
        return log_p[:, 1] - log_p[:, 0]

    def predict_proba(self, x: Any) -> np.ndarray:
        """The probabilities of classes, float32 (n, classes), or of each label, (n, labels); UsageError for numbers."""
        return self.proba(self.weights.logits(x))

    def proba(self, logits: np.ndarray) -> np.ndarray:
        """:meth:`predict_proba` of the weights' logits (n, K)."""
        if self.kind in NUMBERS:
            raise UsageError("a probe of numbers has no probabilities; predict gives its numbers.")
        if self.kind in LABELS:
            return self.weights.proba(logits.reshape(-1, 1))[:, 1].reshape(logits.shape)
        return self.weights.proba(logits)

    def predict(self, x: Any) -> np.ndarray:
        """The likeliest class by number, int (n,); 0 or 1 for each label, (n, labels); numbers as float32."""
        return self.predicted(self.weights.logits(x))

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

    def threshold(self, rate: float) -> float:
        """The score above which at most ``rate`` of the evaluated negatives lay.

        Raises
        ------
        UsageError
            If the card has no threshold for this rate; the message says why.
        """
        known = {one["rate"]: one for one in self.card.get("thresholds", ())}
        if rate not in known:
            rates = ", ".join(f"{one:g}" for one in known) or "none"
            raise UsageError(f"the probe's card has thresholds for the rates {rates}, not {rate:g}.")
        if known[rate]["threshold"] is None:
            raise UsageError(f"there is no threshold for a rate of {rate:g}: {known[rate]['why']}.")
        return float(known[rate]["threshold"])

    def score(self, texts: Any, **options: Any) -> pd.DataFrame:
        """Run the model up to the probe's layer on texts, and score them; see :func:`probekit.apply`."""
        from probekit.monitors.scoring import score_texts

        return score_texts(self, texts, **options)

    def alarm(self, texts: Sequence[Any], **options: Any) -> Alarm:
        """The rule that stops a given share of harmless texts.

        Parameters
        ----------
        texts : sequence
            Harmless texts, of the kind that the model will write; 1 / rate at least.
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

        Raises
        ------
        UsageError
            If the folder exists and holds something else than kept probes.
        """
        return save_probes([self], folder)

    def __repr__(self) -> str:
        model, task = self.card["encoder"].get("model", "?"), self.card["train"].get("task", "?")
        return f"<Probe {self.card['estimator']}, layer {self.layer} of {model}, {task}: {', '.join(self.classes)}>"


def save_probes(probes: Sequence[Probe], folder: str | Path) -> Path:
    """Write probes of several layers to one folder; errors as for :meth:`Probe.save`."""
    return write_folder([(probe.card, probe.weights) for probe in probes], Path(folder))
