"""Minimum description length probing, layer by layer: in how many bits labels can be sent to one who has the vectors.

A probe that finds the labels easily, from few examples, sends them in few bits. The number does not rest on one
training run and one accuracy, and labels that have nothing to do with the vectors take as much as without them
(Voita & Titov 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t as student

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.codes.online import FRACTIONS, OnlineCode, online_code
from probekit.probes.codes.options import Code, CodeOptions
from probekit.probes.codes.variational import VariationalCode, variational_code
from probekit.probes.protocol.experiment import Vectors
from probekit.probes.protocol.labels import Labels
from probekit.probes.solvers.logistic import CS
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress, torch_threads
from probekit.statistics.comparisons import holm
from probekit.statistics.controls import control_task, shuffled

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mdl_rows"]

Target = dict[str, Any]
"""The columns target and draw."""
WHOLE = ("codelength-bits", "bits-per-example", "compression", "compression-over-prior", "saved-bits")
"""The measures of a whole code."""
ESTIMATORS: dict[type, str] = {OnlineCode: "online-logistic", VariationalCode: "variational-linear"}
TINY = 1e-9
FITS = 2.0
"""Times the variance between orders of one sample: about that of what other samples would have taught the probes.

Half of the labels are sent with what was learnt from the other half, and two orders share half of that. 2 instead of 1,
since samples that teach little are dear to send as well (measured: benchmarks/rates/mdl.py).
"""


@torch_threads(1)
def mdl_rows(
    train_layers: Mapping[str, Vectors],
    labels: np.ndarray | Labels,
    *,
    about: Mapping[str, Any],
    targets: Mapping[str, np.ndarray] | None = None,
    options: CodeOptions = CodeOptions(),
    classes: int | None = None,
    progress: Progress = no_progress,
) -> pd.DataFrame:
    """Code length of the labels of train given each layer's vectors; of controls, too.

    Parameters
    ----------
    train_layers : mapping of str to array
        By layer name, float (n, d), or a function that reads it; layers are read in turn.
    labels : ndarray or Labels
        Class indices (n,), -1 for unlabelled, which are left out and counted; :class:`Labels` where rows are words.
    about : mapping
        The columns task, split, model, representation … of the rows.
    targets : mapping of str to ndarray, optional
        Controls by name, labelled where ``labels`` are; for None ``options.controls`` shufflings of the labels, and as
        many control tasks where rows are words whose types are known.
    options : CodeOptions
        See :func:`online_code` and :func:`variational_code`.
    classes : int, optional
        How many there are; the largest index + 1 for None.
    progress : callable
        Told after each layer.

    Returns
    -------
    DataFrame
        For each layer and target the metrics "codelength-bits", "bits-per-example", "compression" (uniform code length
        / code length), "compression-over-prior" (that of the prior's code, which learns the shares of the classes and
        looks at no vectors / code length) and "saved-bits" (their difference). The targets "uniform" and "prior" are
        these two codes. Of gold labels sent in several orders, value is the mean, with a 95 % interval for new examples
        in new orders (t, variances over orders and over examples, or groups, together); p is that of a code no shorter
        than the prior's, p_adjusted corrected over layers (Holm 1979). Of the online code also
        "portion-bits-per-example", one row a portion, of the first order: how the probe learns as examples come in.
        Own columns: code, unit, classes, uniform_bits, prior_bits, orders, null, left_out (unlabelled rows); online:
        penalty (the single C with the shortest code), penalty_bits (its length; see :class:`OnlineCode` on why it is
        not the value), converged, portion (0, 1, …; -1 for the whole) and sent (share of train by its end), of the
        first order; variational: weight_bits, label_bits, features_kept.

    Raises
    ------
    UsageError
        For labels that are numbers, and as the two codes do.
    NonFiniteError
        Naming a layer.
    """
    y = labels if isinstance(labels, Labels) else Labels(np.asarray(labels))
    if y.y.dtype.kind == "f":
        raise UsageError("a code length is defined for classes; these labels are numbers (regression).")
    known, kept, seed = y.known, y[y.known], options.seed
    names, controls = _controls(y, options) if targets is None else _named(targets, known)
    wanted = np.stack([kept.y, *(control[known] for control in controls)], axis=1)
    common = {**about, "seed": seed, "n": len(kept.y), "code": str(options.code), "unit": "bits"}
    found: list[tuple[dict[str, Any], _Sent]] = []
    for done, (layer, vectors) in enumerate(train_layers.items(), 1):
        x = _read(vectors, known, layer)
        own = {**common, "layer": layer, "left_out": int((~known).sum())}
        if options.code is Code.ONLINE:
            Cs, fractions = options.penalties or CS, options.fractions or FRACTIONS
            send = partial(online_code, x, Cs=Cs, classes=classes, groups=kept.groups, fractions=fractions)
            first = send(wanted, seed=seed)
            more = [send(wanted[:, :1], seed=(seed, order)) for order in range(1, options.orders)]
            found.append((own, _Sent.of([first, *more], kept.groups)))
        else:
            found.append((own, _Sent(variational_code(x, wanted, classes=classes, seed=seed))))
        progress("mdl", done, len(train_layers))
    adjusted = holm(np.array([sent.p for _, sent in found]))
    records: list[dict[str, Any]] = []
    for (own, sent), p in zip(found, adjusted, strict=True):
        records += sent.records(names, {**own, "p_adjusted": float(p)})
    return make_rows(records)


def _controls(y: Labels, options: CodeOptions) -> tuple[list[Target], list[np.ndarray]]:
    """Shufflings, and control tasks of the word types (Hewitt & Liang 2019): what the targets are, gold first."""
    words = y.types is not None
    made = {"shuffled": shuffled(y.y, options.controls, options.seed, groups=y.groups, ordered=words)}
    if y.types is not None:
        made["control-task"], _ = control_task(y.types, y.types[:0], y.y, options.controls, options.seed)
    names = [{"target": kind, "draw": i} for kind, draws in made.items() for i in range(len(draws))]
    return [{"target": "gold"}, *names], [control for draws in made.values() for control in draws]


def _named(targets: Mapping[str, np.ndarray], known: np.ndarray) -> tuple[list[Target], list[np.ndarray]]:
    for name, control in targets.items():
        if len(control) != len(known) or ((control >= 0) != known).any():
            raise UsageError(f"target {name} labels other rows than gold does.")
    return [{"target": name} for name in ("gold", *targets)], list(targets.values())


def _read(vectors: Vectors, known: np.ndarray, layer: str) -> np.ndarray:
    """The labelled rows of a layer, float32 (n, d), finite."""
    x = np.asarray(vectors() if callable(vectors) else vectors)
    if x.ndim != 2 or len(x) != len(known):
        raise UsageError(f"layer {layer}: vectors {x.shape} do not go with {len(known)} labels; (n, d) is wanted.")
    x = (x if known.all() else x[known]).astype(np.float32, copy=False)
    if not np.isfinite(x).all():
        raise NonFiniteError(f"layer {layer} holds NaN or infinity; it cannot be probed.")
    return x


@dataclass(frozen=True, slots=True)
class _Sent:
    """The codes of one layer: of all targets in the first order, and what several orders give for gold.

    Attributes
    ----------
    first : OnlineCode or VariationalCode
        Of all targets.
    orders : np.ndarray
        (orders, 3), bits of gold in each order, those that it saves on the prior's code, and ln(prior's / gold's).
    sd : np.ndarray
        (3,), standard errors of their means: over orders, and over examples (groups) at once.
    freedom : np.ndarray
        (3,), degrees of freedom (Satterthwaite 1946).
    """

    first: OnlineCode | VariationalCode
    orders: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))
    sd: np.ndarray = field(default_factory=lambda: np.full(3, np.nan))
    freedom: np.ndarray = field(default_factory=lambda: np.full(3, np.nan))

    @classmethod
    def of(cls, codes: Sequence[OnlineCode], groups: np.ndarray | None) -> _Sent:
        """Several orders of gold, the first of all codes."""
        bits, prior = np.array([(code.bits[0], code.prior_bits[0]) for code in codes]).T
        orders = np.stack([bits, prior - bits, np.log(prior / bits)], axis=1)
        if len(codes) < 2:
            return cls(codes[0], orders)
        own, shares = np.mean([(code.each[0], code.prior[0]) for code in codes], axis=0)
        each = np.stack([own, shares - own, shares / prior.mean() - own / bits.mean()])
        unit = np.arange(each.shape[1]) if groups is None else np.unique(groups, return_inverse=True)[1].ravel()
        m = int(unit.max()) + 1
        sums = np.stack([np.bincount(unit, own - own.mean()) for own in each])
        parts = np.stack([(FITS + 1 / len(orders)) * orders.var(0, ddof=1), (sums**2).sum(1) * m / (m - 1)])
        total = parts.sum(0)
        least = (parts**2 / np.array([[len(orders) - 1], [m - 1]])).sum(0)
        freedom = np.divide(total**2, least, out=np.full(3, np.inf), where=least > 0)
        return cls(codes[0], orders, np.sqrt(total), freedom)

    @property
    def p(self) -> float:
        """Of the code being no shorter than the prior's on average; NaN of one order."""
        if not self.sd[1] > 0:
            return float("nan")
        return float(student.sf(self.orders[:, 1].mean() / self.sd[1], self.freedom[1]))

    def records(self, names: Sequence[Target], own: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of each target, and of the two codes that look at no vectors."""
        told, one = {k: v for k, v in own.items() if k != "p_adjusted"}, self.first
        rows = _online(one, names, told) if isinstance(one, OnlineCode) else _variational(one, names, told)
        for record in rows:
            if record["target"] == "gold" and record["metric"] in WHOLE:
                record |= self._gold(record) | {"p": self.p, "p_adjusted": own["p_adjusted"], "null": "prior's code"}
            yield record
        row = {**own, "portion": -1, "sent": 1.0}
        n, classes, uniform = int(own["n"]), self.first.classes, self.first.uniform_bits
        for name, bits in (("uniform", uniform), ("prior", float(self.first.prior_bits[0]))):
            about = {"estimator": ESTIMATORS[type(self.first)], "target": name, "p_adjusted": np.nan}
            for metric, value in (
                ("codelength-bits", bits),
                ("bits-per-example", bits / n),
                ("compression", uniform / bits),
            ):
                yield {**row, **about, "metric": metric, "value": value, "classes": classes, "uniform_bits": uniform}

    def _gold(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """What several orders say of a measure: their mean, and its interval."""
        if not len(self.orders):
            return {"orders": 1}
        bits, saved, ratio = self.orders.mean(0)
        low, high = student.ppf([[0.025], [0.975]], self.freedom) * self.sd
        n, uniform = record["n"], record["uniform_bits"]
        ends = {
            "codelength-bits": (bits, bits + low[0], bits + high[0]),
            "bits-per-example": (bits / n, (bits + low[0]) / n, (bits + high[0]) / n),
            "compression": (uniform / bits, uniform / (bits + high[0]), uniform / max(bits + low[0], TINY)),
            "compression-over-prior": tuple(np.exp(ratio + end[2]) for end in ((0, 0, 0), low, high)),
            "saved-bits": (saved, saved + low[1], saved + high[1]),
        }[record["metric"]]
        return {"value": ends[0], "ci_low": ends[1], "ci_high": ends[2], "orders": len(self.orders)}


def _measures(result: OnlineCode | VariationalCode, target: int) -> Iterator[dict[str, Any]]:
    bits, prior = float(result.bits[target]), float(result.prior_bits[target])
    n = result.uniform_bits / np.log2(result.classes)
    for metric, value in zip(
        WHOLE, (bits, bits / n, float(result.compression[target]), prior / bits, prior - bits), strict=True
    ):
        about = {"classes": result.classes, "uniform_bits": result.uniform_bits, "prior_bits": prior}
        yield {"metric": metric, "value": value, **about}


def _online(result: OnlineCode, names: Sequence[Target], own: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for t, name in enumerate(names):
        best = result.best[t]
        alone = {"penalty": result.Cs[best], "penalty_bits": float(result.portions[t, best].sum())}
        row = {
            **own,
            "estimator": ESTIMATORS[OnlineCode],
            **name,
            **alone,
            "converged": bool(result.converged[t].all()),
        }
        for measure in _measures(result, t):
            yield {**row, **measure, "portion": -1, "sent": 1.0}
        sizes = np.diff(result.ends, prepend=0)
        for i, (bits, size, end) in enumerate(zip(result.curve[t], sizes, result.ends, strict=True)):
            measure = {"metric": "portion-bits-per-example", "value": bits / size, "n": int(size)}
            sent = {"portion": i, "sent": float(end / result.ends[-1])}
            yield {**row, "classes": result.classes, "uniform_bits": size * np.log2(result.classes), **measure, **sent}


def _variational(result: VariationalCode, names: Sequence[Target], own: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for t, name in enumerate(names):
        parts = {"weight_bits": float(result.weight_bits[t]), "label_bits": float(result.label_bits[t])}
        row = {**own, "estimator": ESTIMATORS[VariationalCode], **name, **parts, "features_kept": int(result.kept[t])}
        for measure in _measures(result, t):
            yield {**row, **measure}
