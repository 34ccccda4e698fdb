"""How far the vectors of the examples of caches move from those of a reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.matching import Matched, Side, by_step, check_finite, check_layers, matched, opened, texts_of
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import PairFeatures
from probekit.errors import UsageError
from probekit.files import FileKind, check_folder, parse_json, whole
from probekit.metrics import derive
from probekit.notes import logger
from probekit.recipe import current
from probekit.rows import Result, make_rows
from probekit.rows.schema import identified
from probekit.runtime import Progress
from probekit.similarity.movement import FEWEST, FOLDS, Movement, movement
from probekit.similarity.options import DISTANCES
from probekit.statistics.bootstrap import bounds
from probekit.statistics.label_means import differences_of_means

if TYPE_CHECKING:
    from probekit.analyses.movement import MovementOptions

log = logger(__name__)

FORMAT = "probekit-movement/1"
ALIGNED = "aligned-distance"
ENOUGH = 2  # examples for each dimension, from which on a rotation leaves less than 1 % of the distance of others
DRAWS = 1000  # permutations of the labels, without resamples
FEW_CLASSES = 20
"""With more classes, there are no rows by label."""


def _is_movement(path: Path) -> bool:
    from pyarrow.parquet import read_schema

    about = parse_json((read_schema(path).metadata or {}).get(b"probekit", b"{}"))
    return bool(about.get("format") == FORMAT)


EXAMPLES_FILE = FileKind("a file of distances by example", _is_movement, "give the distances another name")


def measure(
    caches: Sequence[str | Path | ActivationCache],
    vectors: VectorOptions,
    options: MovementOptions,
    examples: Path | None,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.movement`."""
    if len(caches) < 2:
        raise UsageError("movement needs a reference and one or more models; give two caches or more.")
    _check_place(examples)
    with ExitStack() as stack:
        found = matched(by_step(opened(caches, stack)), vectors)
        reference, *others = found.sides
        for side in others:
            check_layers(reference, side)
        _check_reference(reference, others)
        measured: list[tuple[Side, str, Movement]] = []
        total = len(others) * len(reference.layers)
        for side in others:
            for name in side.layers:
                progress("layers", len(measured), total)
                measured.append((side, name, _measure(reference, side, name, found, options)))
        progress("layers", len(measured), total)
        texts = texts_of(reference.cache) if options.top else None
        rows = make_rows(_rows(found, measured, texts, options))
        reads = tuple(side.read for side in found.sides)
    if examples is not None:
        _write(examples, found, measured, options)
    return Result(rows, reads=reads)


def _check_place(examples: Path | None) -> None:
    """Raise UsageError, before the computation, if the distances cannot be written."""
    if examples is None:
        return
    recipe = current()
    if examples.suffix != ".parquet" or (recipe and str(examples) == recipe.leaves.get("out")):
        raise UsageError(f"--examples must be a separate .parquet file, not {examples}.")
    EXAMPLES_FILE.check(examples)
    check_folder(examples.parent)


def _check_reference(reference: Side, others: Sequence[Side]) -> None:
    """Warn if the reference is fine-tuned and another model is not."""
    first = reference.columns
    if first.get("regime") != "fine-tune" or first["step"] == 0:
        return
    for side in others:
        if not side.columns["checkpoint"] and side.columns["model"] == first["model"]:
            log.warning(
                "the reference is the first cache, %s, a fine-tuned model; to measure what training changed, give "
                "the pretrained one, %s, first.", reference.cache.path, side.cache.path,
            )  # fmt: skip
            return


def _measure(reference: Side, side: Side, name: str, found: Matched, options: MovementOptions) -> Movement:
    x, y = (_plain(one.layers[name]()) for one in (reference, side))
    for one, values in ((reference, x), (side, y)):
        check_finite(values, one.cache, name, found.labels)
    align = ALIGNED in options.measures
    return movement(x, y, groups=found.labels.groups, seed=options.seed, align=align)


def _plain(x: Any) -> Any:
    """Vectors [u; v] of separately encoded pairs as they are, without |u - v| and u * v."""
    inner = getattr(x, "x", x)
    if isinstance(inner, PairFeatures):
        return type(x)(inner.x, x.rows)
    return inner if isinstance(x, PairFeatures) else x


def _rows(
    found: Matched,
    measured: Sequence[tuple[Side, str, Movement]],
    texts: Mapping[str, str] | None,
    options: MovementOptions,
) -> pd.DataFrame:
    """All rows: means, by label, differences between labels, and the examples that moved most."""
    chosen = [DISTANCES.index(name) for name in options.measures]
    for note in dict.fromkeys(_note(found, side, name) for side, name, _ in measured if ALIGNED in options.measures):
        if note:
            log.warning("%s: %s.", ALIGNED, note)
    values = np.stack([one.distance[k] for _, _, one in measured for k in chosen])
    others = np.stack([one.others[k] for _, _, one in measured for k in chosen])
    heads = [
        {
            "analysis": "movement", **side.columns, **found.group_columns, "layer_name": name, "estimator": "",
            "against": identified(found.sides[0].columns), "target": "gold", "metric": DISTANCES[k],
            "seed": options.seed, "label": "", "example": "", "text": "",
            "note": _note(found, side, name) if DISTANCES[k] == ALIGNED else "",
        }
        for side, name, _ in measured
        for k in chosen
    ]  # fmt: skip
    records = [head | row for head, row in zip(heads, _means(values, found.labels.groups, options), strict=True)]
    for record, other in zip(records, others, strict=True):
        record["others"] = float(np.nanmean(other)) if np.isfinite(other).any() else np.nan
    by_label = list(_by_label(found, heads, values, options))
    top = [row for head, row in zip(heads, values, strict=True) if head["metric"] == options.measures[0]]
    of_top = [head for head in heads if head["metric"] == options.measures[0]]
    moved = [r for head, row in zip(of_top, top, strict=True) for r in _most(found, head, row, texts, options.top)]
    return pd.DataFrame([*records, *by_label, *moved])


def _note(found: Matched, side: Side, name: str) -> str:
    """Why a rotation cannot be fitted, or not well; "" with enough examples."""
    n, groups = len(found), found.labels.groups
    if n < FEWEST or (groups is not None and len(np.unique(groups)) < FOLDS):
        return f"a rotation needs {FEWEST} examples in {FOLDS} groups or more"
    width, fitted = side.cache.widths[side.cache.layers.index(name)], n - n // FOLDS
    if fitted >= ENOUGH * width:
        return ""
    return (
        f"{fitted:,} examples are too few to estimate a rotation in {width} dimensions; part of the rotation is "
        "counted as distance"
    )


def _means(values: np.ndarray, groups: np.ndarray | None, options: MovementOptions) -> Iterator[dict[str, Any]]:
    """The mean of each row of values (F, n) with its interval; undefined distances are left out."""
    there = np.isfinite(values)
    for row, known in zip(values, there, strict=True):
        if not known.any():
            yield {"value": np.nan, "ci_low": np.nan, "ci_high": np.nan, "n": 0}
            continue
        zero = np.zeros(known.sum())
        one = bounds(
            zero, zero[None], "log-loss", log_loss=row[known][None], groups=None if groups is None else groups[known],
            resamples=options.resamples, level=options.level, seed=options.seed,
        )  # fmt: skip
        low, high = one.ci[0]
        yield {"value": float(one.value[0]), "ci_low": low, "ci_high": high, "n": int(known.sum())}


def _by_label(
    found: Matched, heads: Sequence[Mapping[str, Any]], values: np.ndarray, options: MovementOptions
) -> Iterator[dict[str, Any]]:
    """Rows of each class, and of its difference from the others; none for numbers and for more than 20 classes."""
    labels, names = found.labels, found.sides[0].cache.spec["label_names"]
    if labels.y.dtype.kind == "f":
        return
    classes = np.unique(labels.y[labels.known])
    if not 2 <= len(classes) <= FEW_CLASSES:
        return
    rest = classes[:1] if len(classes) == 2 else classes
    known = labels.known
    of = differences_of_means(
        values[:, known], labels.y[known], rest, None if labels.groups is None else labels.groups[known],
        draws=options.resamples or DRAWS, level=options.level, seed=options.seed,
    )  # fmt: skip
    for code in classes:
        rows = labels.y == code
        groups = None if labels.groups is None else labels.groups[rows]
        for head, row in zip(heads, _means(values[:, rows], groups, options), strict=True):
            yield dict(head) | row | {"label": _label(names, code)}
    for c, code in enumerate(rest):
        for f, head in enumerate(heads):
            yield dict(head) | {
                "metric": derive("difference", head["metric"]), "label": _label(names, code), "n": int(known.sum()),
                "value": of.value[c, f], "ci_low": of.low[c, f], "ci_high": of.high[c, f], "p": of.p[c, f],
                "p_adjusted": of.p_adjusted[c, f],
            }  # fmt: skip


def _label(names: Sequence[str], code: Any) -> str:
    return str(names[int(code)]) if len(names) else str(code)


def _most(
    found: Matched, head: Mapping[str, Any], row: np.ndarray, texts: Mapping[str, str] | None, top: int
) -> Iterator[dict[str, Any]]:
    """The examples with the largest distance, the largest first."""
    labels, names = found.labels, found.sides[0].cache.spec["label_names"]
    assert labels.ids is not None
    for i in np.argsort(np.where(np.isfinite(row), -row, np.inf), kind="stable")[: min(top, np.isfinite(row).sum())]:
        name = str(labels.ids[i])
        label = "" if not labels.known[i] else _label(names, labels.y[i])
        yield dict(head) | {"value": row[i], "n": 1, "example": name, "label": label, "text": _text(texts, name, found)}


def _text(texts: Mapping[str, str] | None, name: str, found: Matched) -> str:
    """The text of an example; for a word, its sentence."""
    return "" if texts is None else texts.get(name.rpartition(":")[0] if found.words else name, "")


def _write(
    path: Path, found: Matched, measured: Sequence[tuple[Side, str, Movement]], options: MovementOptions
) -> None:
    """The distances of all examples: model, checkpoint, step, layer, id, label, and a column for each distance."""
    import pyarrow as pa
    from pyarrow import parquet

    labels, names = found.labels, found.sides[0].cache.spec["label_names"]
    assert labels.ids is not None
    label = [None if not known else _label(names, y) for known, y in zip(labels.known, labels.y, strict=True)]
    columns = [("model", pa.string()), ("checkpoint", pa.string()), ("step", pa.int64()), ("layer", pa.string())]
    columns += [("id", pa.string()), ("label", pa.string()), *((name, pa.float64()) for name in options.measures)]
    schema = pa.schema(columns, metadata={"probekit": json.dumps({"format": FORMAT})})
    n = len(labels.ids)
    with whole(path, EXAMPLES_FILE) as new, parquet.ParquetWriter(new, schema, compression="zstd") as writer:
        for side, layer, one in measured:
            head = [side.columns["model"], side.columns["checkpoint"], side.columns["step"], layer]
            arrays = [pa.array([value] * n, kind) for value, (_, kind) in zip(head, columns, strict=False)]
            arrays += [pa.array(labels.ids.astype(str)), pa.array(label, pa.string())]
            arrays += [pa.array(one.distance[DISTANCES.index(name)]) for name in options.measures]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
