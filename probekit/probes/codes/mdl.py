"""Minimum description length probing, layer by layer: the code length of labels for a receiver who has the vectors.

A probe that finds the labels easily, from few examples, transmits them in few bits. The code length does not depend on
a single training run and accuracy, and labels unrelated to the vectors take as many bits as without vectors (Voita &
Titov 2020).
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

Target = dict[str, Any]
"""The columns target and draw."""
WHOLE = ("codelength-bits", "bits-per-example", "compression", "compression-over-prior", "saved-bits")
"""The measures of a whole code."""
ESTIMATORS: dict[type, str] = {OnlineCode: "online-logistic", VariationalCode: "variational-linear"}
TINY = 1e-9
FITS = 2.0
"""This factor times the variance between orders of one sample approximates the variance due to fits on other samples.

Half of the labels are sent with probes learned from the other half, and two orders share half of that data. The factor
is 2 rather than 1 because samples from which probes learn little also take more bits (`benchmarks/rates`).
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
    """Code length of the labels of train, and of controls, given each layer's vectors.

    Parameters
    ----------
    train_layers : mapping of str to array
        By layer name, float (n, d) or a function that returns it; layers are read one after another.
    labels : ndarray or Labels
        Class indices (n,); rows with -1 (unlabelled) are left out and counted. :class:`Labels` if rows are words.
    about : mapping
        The columns task, split, model, representation … of the rows.
    targets : mapping of str to ndarray, optional
        Controls by name, labelled on the same rows as ``labels``; by default ``options.controls`` shuffled label sets,
        and as many control tasks if rows are words with known types.
    options : CodeOptions
        See :func:`online_code` and :func:`variational_code`.
    classes : int, optional
        Number of classes (default: the largest index + 1).
    progress : callable
        Called after each layer.

    Returns
    -------
    DataFrame
        For each layer and target the metrics "codelength-bits", "bits-per-example", "compression" (uniform code length
        / code length), "compression-over-prior" (length of the prior's code, which learns the class frequencies without
        the vectors / code length) and "saved-bits" (their difference). The targets "uniform" and "prior" are these two
        codes. For gold labels sent in several orders, value is the mean, with a 95 % interval for new examples in new
        orders (t; variances over orders and over examples, or groups, combined); p is for the null hypothesis that the
        code is not shorter than the prior's, p_adjusted corrected over layers (Holm 1979). The online code also has
        "portion-bits-per-example", one row per portion of the first order: the learning curve of the probe.
        Additional columns: code, unit, classes, uniform_bits, prior_bits, orders, null, left_out (unlabelled rows);
        online, for the first order: penalty (the single C with the shortest code), penalty_bits (its length;
        :class:`OnlineCode` explains why it is not the value), converged, portion (0, 1, …; -1 for the whole) and sent
        (share of train by its end); variational: weight_bits, label_bits, features_kept.

    Raises
    ------
    UsageError
        For numeric labels, and as :func:`online_code` and :func:`variational_code`.
    NonFiniteError
        If a layer contains NaN or infinity.
    """
    y = labels if isinstance(labels, Labels) else Labels(np.asarray(labels))
    if y.y.dtype.kind == "f":
        raise UsageError("a code length is defined for classes; these labels are numbers (regression).")
    known, labelled, seed = y.known, y[y.known], options.seed
    names, controls = _controls(y, options) if targets is None else _named(targets, known)
    label_sets = np.stack([labelled.y, *(control[known] for control in controls)], axis=1)
    common = {**about, "seed": seed, "n": len(labelled.y), "code": str(options.code), "unit": "bits"}
    found: list[tuple[dict[str, Any], _Sent]] = []
    for done, (layer, vectors) in enumerate(train_layers.items(), 1):
        x = _read(vectors, known, layer)
        columns = {**common, "layer": layer, "left_out": int((~known).sum())}
        if options.code is Code.ONLINE:
            Cs, fractions = options.penalties or CS, options.fractions or FRACTIONS
            send = partial(online_code, x, Cs=Cs, classes=classes, groups=labelled.groups, fractions=fractions)
            first = send(label_sets, seed=seed)
            more = [send(label_sets[:, :1], seed=(seed, order)) for order in range(1, options.orders)]
            found.append((columns, _Sent.of([first, *more], labelled.groups)))
        else:
            found.append((columns, _Sent(variational_code(x, label_sets, classes=classes, seed=seed))))
        progress("layers", done, len(train_layers))
    adjusted = holm(np.array([sent.p for _, sent in found]))
    records: list[dict[str, Any]] = []
    for (columns, sent), p in zip(found, adjusted, strict=True):
        records += sent.records(names, {**columns, "p_adjusted": float(p)})
    return make_rows(records)


def _controls(y: Labels, options: CodeOptions) -> tuple[list[Target], list[np.ndarray]]:
    """The targets (gold first), and the shuffled labels and control tasks (Hewitt & Liang 2019)."""
    words = y.types is not None
    made = {"shuffled": shuffled(y.y, options.controls, options.seed, groups=y.groups, ordered=words)}
    if y.types is not None:
        made["control-task"], _ = control_task(y.types, y.types[:0], y.y, options.controls, options.seed)
    names = [{"target": kind, "draw": i} for kind, draws in made.items() for i in range(len(draws))]
    return [{"target": "gold"}, *names], [control for draws in made.values() for control in draws]


def _named(targets: Mapping[str, np.ndarray], known: np.ndarray) -> tuple[list[Target], list[np.ndarray]]:
    for name, control in targets.items():
        if len(control) != len(known) or ((control >= 0) != known).any():
            raise UsageError(f"target {name} must label the same rows as the gold labels.")
    return [{"target": name} for name in ("gold", *targets)], list(targets.values())


def _read(vectors: Vectors, known: np.ndarray, layer: str) -> np.ndarray:
    """The labelled rows of a layer, float32 (n, d), finite."""
    x = np.asarray(vectors() if callable(vectors) else vectors)
    if x.ndim != 2 or len(x) != len(known):
        raise UsageError(
            f"layer {layer}: vectors must have the shape (n, d) with n = {len(known)} labels, not {x.shape}."
        )
    x = (x if known.all() else x[known]).astype(np.float32, copy=False)
    if not np.isfinite(x).all():
        raise NonFiniteError(f"layer {layer} contains NaN or infinity and cannot be probed.")
    return x


@dataclass(frozen=True, slots=True)
class _Sent:
    """The codes of one layer: all targets in the first order, and gold in several orders.

    Attributes
    ----------
    first : OnlineCode or VariationalCode
        The codes of all targets.
    orders : np.ndarray
        (orders, 3), bits of gold in each order, bits saved against the prior's code, and ln(prior's / gold's).
    sd : np.ndarray
        (3,), standard errors of their means, over orders and examples (groups) combined.
    freedom : np.ndarray
        (3,), degrees of freedom (Satterthwaite 1946).
    """

    first: OnlineCode | VariationalCode
    orders: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))
    sd: np.ndarray = field(default_factory=lambda: np.full(3, np.nan))
    freedom: np.ndarray = field(default_factory=lambda: np.full(3, np.nan))

    @classmethod
    def of(cls, codes: Sequence[OnlineCode], groups: np.ndarray | None) -> _Sent:
        """Combine several orders of gold; the first code holds all targets."""
        bits, prior = np.array([(code.bits[0], code.prior_bits[0]) for code in codes]).T
        orders = np.stack([bits, prior - bits, np.log(prior / bits)], axis=1)
        if len(codes) < 2:
            return cls(codes[0], orders)
        gold, shares = np.mean([(code.each[0], code.prior[0]) for code in codes], axis=0)
        each = np.stack([gold, shares - gold, shares / prior.mean() - gold / bits.mean()])
        unit = np.arange(each.shape[1]) if groups is None else np.unique(groups, return_inverse=True)[1].ravel()
        m = int(unit.max()) + 1
        sums = np.stack([np.bincount(unit, values - values.mean()) for values in each])
        parts = np.stack([(FITS + 1 / len(orders)) * orders.var(0, ddof=1), (sums**2).sum(1) * m / (m - 1)])
        total = parts.sum(0)
        least = (parts**2 / np.array([[len(orders) - 1], [m - 1]])).sum(0)
        freedom = np.divide(total**2, least, out=np.full(3, np.inf), where=least > 0)
        return cls(codes[0], orders, np.sqrt(total), freedom)

    @property
    def p(self) -> float:
        """p that the code is not shorter than the prior's on average; NaN for one order."""
        if not self.sd[1] > 0:
            return float("nan")
        return float(student.sf(self.orders[:, 1].mean() / self.sd[1], self.freedom[1]))

    def records(self, names: Sequence[Target], about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of each target, and of the two codes that do not use the vectors."""
        columns, one = {k: v for k, v in about.items() if k != "p_adjusted"}, self.first
        rows = _online(one, names, columns) if isinstance(one, OnlineCode) else _variational(one, names, columns)
        for record in rows:
            if record["target"] == "gold" and record["metric"] in WHOLE:
                record |= self._gold(record) | {"p": self.p, "p_adjusted": about["p_adjusted"], "null": "prior's code"}
            yield record
        row = {**about, "portion": -1, "sent": 1.0}
        n, classes, uniform = int(about["n"]), self.first.classes, self.first.uniform_bits
        for name, bits in (("uniform", uniform), ("prior", float(self.first.prior_bits[0]))):
            code = {"estimator": ESTIMATORS[type(self.first)], "target": name, "p_adjusted": np.nan}
            for metric, value in (
                ("codelength-bits", bits),
                ("bits-per-example", bits / n),
                ("compression", uniform / bits),
            ):
                yield {**row, **code, "metric": metric, "value": value, "classes": classes, "uniform_bits": uniform}

    def _gold(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The mean of a measure over orders, with its interval."""
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


def _online(result: OnlineCode, names: Sequence[Target], columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for t, name in enumerate(names):
        best = result.best[t]
        single = {"penalty": result.Cs[best], "penalty_bits": float(result.portions[t, best].sum())}
        row = {
            **columns,
            "estimator": ESTIMATORS[OnlineCode],
            **name,
            **single,
            "converged": bool(result.converged[t].all()),
        }
        for measure in _measures(result, t):
            yield {**row, **measure, "portion": -1, "sent": 1.0}
        sizes = np.diff(result.ends, prepend=0)
        for i, (bits, size, end) in enumerate(zip(result.curve[t], sizes, result.ends, strict=True)):
            measure = {"metric": "portion-bits-per-example", "value": bits / size, "n": int(size)}
            sent = {"portion": i, "sent": float(end / result.ends[-1])}
            yield {**row, "classes": result.classes, "uniform_bits": size * np.log2(result.classes), **measure, **sent}


def _variational(
    result: VariationalCode, names: Sequence[Target], columns: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    for t, name in enumerate(names):
        parts = {"weight_bits": float(result.weight_bits[t]), "label_bits": float(result.label_bits[t])}
        row = {
            **columns,
            "estimator": ESTIMATORS[VariationalCode],
            **name,
            **parts,
            "features_kept": int(result.kept[t]),
        }
        for measure in _measures(result, t):
            yield {**row, **measure}
