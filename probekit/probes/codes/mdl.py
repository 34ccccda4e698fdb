"""Minimum description length probing, layer by layer: in how many bits labels can be sent to one who has the vectors.

A probe that finds the labels easily, from few examples, sends them in few bits. The number does not rest on one
training run and one accuracy, and labels that have nothing to do with the vectors take as much as without them
(Voita & Titov 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.codes.online import FRACTIONS, OnlineCode, online_code
from probekit.probes.codes.options import Code, CodeOptions
from probekit.probes.codes.variational import VariationalCode, variational_code
from probekit.probes.protocol.experiment import Vectors
from probekit.probes.protocol.labels import Labels
from probekit.probes.solvers.logistic import CS
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress, torch_threads
from probekit.statistics.controls import control_task, shuffled

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mdl_rows"]

Target = dict[str, Any]
"""The columns target and draw."""


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
        For each layer and target the metrics "codelength-bits", "bits-per-example" and "compression" (uniform code
        length / code length; what shuffled labels reach comes from the frequencies of the classes alone). Of the online
        code also "portion-bits-per-example", one row a portion: how the probe learns as examples come in.
        Own columns: code, unit, classes, uniform_bits, left_out (unlabelled rows); online: penalty (the single C with
        the shortest code), penalty_bits (its length; see :class:`OnlineCode` on why it is not the value), converged,
        portion (0, 1, …; -1 for the whole) and sent (share of train by its end); variational: weight_bits, label_bits,
        features_kept.

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
    records: list[dict[str, Any]] = []
    for done, (layer, vectors) in enumerate(train_layers.items(), 1):
        x = _read(vectors, known, layer)
        own = {**common, "layer": layer, "left_out": int((~known).sum())}
        if options.code is Code.ONLINE:
            Cs, fractions = options.penalties or CS, options.fractions or FRACTIONS
            result = online_code(x, wanted, Cs=Cs, classes=classes, groups=kept.groups, fractions=fractions, seed=seed)
            records += _online(result, names, own)
        else:
            records += _variational(variational_code(x, wanted, classes=classes, seed=seed), names, own)
        progress("mdl", done, len(train_layers))
    return make_rows(records)


def _controls(y: Labels, options: CodeOptions) -> tuple[list[Target], list[np.ndarray]]:
    """Shufflings, and control tasks of the word types (Hewitt & Liang 2019): what the targets are, gold first."""
    made = {"shuffled": shuffled(y.y, options.controls, options.seed)}
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


def _measures(result: OnlineCode | VariationalCode, target: int) -> Iterator[dict[str, Any]]:
    bits, n = float(result.bits[target]), result.uniform_bits / np.log2(result.classes)
    for metric, value in (
        ("codelength-bits", bits),
        ("bits-per-example", bits / n),
        ("compression", float(result.compression[target])),
    ):
        yield {"metric": metric, "value": value, "classes": result.classes, "uniform_bits": result.uniform_bits}


def _online(result: OnlineCode, names: Sequence[Target], own: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for t, name in enumerate(names):
        best = result.best[t]
        alone = {"penalty": result.Cs[best], "penalty_bits": float(result.portions[t, best].sum())}
        row = {
            **own,
            "estimator": "online-logistic",
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
        row = {**own, "estimator": "variational-linear", **name, **parts, "features_kept": int(result.kept[t])}
        for measure in _measures(result, t):
            yield {**row, **measure}
