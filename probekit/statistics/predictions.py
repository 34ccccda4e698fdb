"""Predictions of probes for each example: the table from which intervals and comparisons are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import DataError, UsageError
from probekit.files import whole
from probekit.parquet import about_in, open_parquet, with_digest
from probekit.rows import make_fits
from probekit.rows.examples import EXAMPLES_FILE, EXAMPLES_FORMATS, EXAMPLES_KEY
from probekit.rows.upgrade import upgrade_fits
from probekit.statistics.duplicates import merged
from probekit.statistics.over_labels import rows_by_label
from probekit.statistics.scored import Scores

if TYPE_CHECKING:
    import pandas as pd

FORMAT, BEFORE, SEVERAL = EXAMPLES_FORMATS
"""Columns of older files are converted by :func:`probekit.rows.upgrade.upgrade_fits`."""
VALUES = ("id", "group", "sentence", "prompt", "of_label", "gold", "predicted", "log_loss", "prior_loss")
ONCE = ("id", "group", "sentence", "prompt", "of_label")
"""The same for all fits."""
NUMBERS = ("predicted", "log_loss", "prior_loss")
SHARE = "probability_"
"""Prefix of predicted probabilities, one column per class: ``probability_0`` …; null for labels of a control."""
ROWS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predictions of F fits for the same n examples.

    Attributes
    ----------
    fits : pd.DataFrame
        F rows; the columns that identify the fit, as in :func:`probekit.rows.make_fits`, and further ones: penalty,
        n_train …
    ids : np.ndarray
        Str (n,).
    gold : np.ndarray
        (n,), or (F, n) if controls have other labels; class codes, or numbers.
    predicted : np.ndarray
        (F, n).
    metrics : tuple[str, ...]
        Names of metrics; the first is the main one.
    groups : np.ndarray, optional
        (n,), units that are resampled as a whole, or None.
    log_loss : np.ndarray, optional
        float32 (F, n), nats, or None.
    label_names : tuple[str, ...], optional
        Names of the codes, for "span-f1".
    prior_loss : np.ndarray, optional
        float32 (F, n), the log loss of the class frequencies in train, or None: (prior_loss - log_loss) / ln 2 is
        pointwise V-information in bits (Ethayarajh, Choi & Swayamdipta 2022, definition 4.1).
    sentences : np.ndarray, optional
        (n,), the sentence of each word, which limits spans; None if these are the groups.
    probabilities : np.ndarray, optional
        float32 (G, n, classes), the predictions of the G fits of gold labels (``target`` "gold"), in their order, or
        None.
    prompts : np.ndarray, optional
        Str (n,), the texts to which ``gold`` and ``predicted`` are responses; None for other tasks.
    of_label : np.ndarray, optional
        Str (n,), the label, or number, that each row is about, where a text has several; None for other tasks.

    Raises
    ------
    UsageError
        If shapes do not match.
    """

    fits: pd.DataFrame
    ids: np.ndarray
    gold: np.ndarray
    predicted: np.ndarray
    metrics: tuple[str, ...]
    groups: np.ndarray | None = None
    log_loss: np.ndarray | None = None
    label_names: tuple[str, ...] = field(default=())
    prior_loss: np.ndarray | None = None
    sentences: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    prompts: np.ndarray | None = None
    of_label: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fits", make_fits(self.fits))
        shape = (len(self.fits), len(self.ids))
        losses = dict.fromkeys(("log_loss", "prior_loss"), (shape,))
        expected = {**losses, "predicted": (shape,), "gold": (shape, shape[1:])}
        expected |= dict.fromkeys(("groups", "sentences", "prompts", "of_label"), (shape[1:],))
        for name, shapes in expected.items():
            value = getattr(self, name)
            if value is not None and np.shape(value) not in shapes:
                raise UsageError(
                    f"{name} has the shape {np.shape(value)}; expected {shape[0]} fits of {shape[1]} examples."
                )
        if self.probabilities is not None and np.shape(self.probabilities)[:-1] != (self.is_gold.sum(), shape[1]):
            raise UsageError(
                f"probabilities have the shape {np.shape(self.probabilities)}; expected {self.is_gold.sum()} fits of "
                f"gold labels, {shape[1]} examples and one per class."
            )
        if not self.metrics:
            raise UsageError("metrics is empty; name at least one metric.")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """As an argument of a recipe: only its type is checked."""
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    def __len__(self) -> int:
        """The number of fits."""
        return len(self.fits)

    @property
    def examples(self) -> int:
        """The number of examples (of word tags: words); several labels or numbers of a text are one."""
        return len(self.ids) if self.of_label is None else len(next(iter(rows_by_label(self.of_label).values())))

    @property
    def is_gold(self) -> np.ndarray:
        """Which fits have gold labels, bool (F,)."""
        return np.asarray(self.fits["target"] == "gold", dtype=bool)

    @property
    def task(self) -> str:
        """The task of the examples."""
        return str(self.fits["task"].iloc[0])

    @property
    def split(self) -> str:
        """The split of the examples."""
        return str(self.fits["split"].iloc[0])

    def take(self, fits: Sequence[int] | np.ndarray) -> Predictions:
        """Some of the fits, by position or as a mask (F,)."""
        at = np.asarray(fits)
        at = np.flatnonzero(at) if at.dtype == bool else at.astype(np.int64)
        gold_rows = (np.cumsum(self.is_gold) - 1)[at[self.is_gold[at]]]
        return Predictions(
            self.fits.iloc[at].reset_index(drop=True),
            self.ids,
            self.gold if self.gold.ndim == 1 else self.gold[at],
            self.predicted[at],
            self.metrics,
            self.groups,
            None if self.log_loss is None else self.log_loss[at],
            self.label_names,
            None if self.prior_loss is None else self.prior_loss[at],
            self.sentences,
            None if self.probabilities is None else self.probabilities[gold_rows],
            self.prompts,
            self.of_label,
        )

    def of_rows(self, rows: np.ndarray) -> Predictions:
        """The same fits for some of the examples, int or bool."""
        names = ("gold", "predicted", "groups", "log_loss", "prior_loss", "sentences", "prompts", "of_label")
        some: dict[str, Any] = {name: None if (v := getattr(self, name)) is None else v[..., rows] for name in names}
        shares = None if self.probabilities is None else self.probabilities[:, rows]
        return replace(self, ids=self.ids[rows], probabilities=shares, **some)

    def sample(self) -> dict[str, Any]:
        """The arguments of :func:`probekit.statistics.bootstrap.replicates` except the metric."""
        names = ("gold", "predicted", "groups", "log_loss", "label_names", "sentences", "scores", "of_label")
        return {name: getattr(self, name) for name in names}

    @property
    def scores(self) -> Scores | None:
        """What the scores of classes follow from; None without probabilities and losses."""
        if self.log_loss is None or self.gold.dtype.kind not in "iu":
            return None
        classes = (
            2
            if self.of_label is not None
            else len(self.label_names) or 1 + int(max(self.gold.max(), self.predicted.max(), 1))
        )
        if self.probabilities is not None:
            classes = self.probabilities.shape[2]
        place = np.full(len(self), -1)
        place[self.is_gold] = np.arange(int(self.is_gold.sum()))
        return Scores(np.atleast_2d(self.gold), self.log_loss, self.probabilities, place, classes)

    def frame(self) -> pd.DataFrame:
        """The long table: one row per fit and example; the columns of ``fits`` as categories."""
        import pandas as pd

        return pd.concat([_long(self, a, b).to_pandas() for a, b in _parts(self)], ignore_index=True)

    def write(self, path: str | Path) -> Path:
        """Write the long table as Parquet, atomically; returns ``path``. Raises UsageError for another suffix."""
        import pyarrow.parquet as parquet

        path = Path(path)
        if path.suffix != ".parquet":
            raise UsageError(f"evaluated examples must be written as .parquet, not {path.suffix!r} ({path}).")
        schema = _long(self, 0, 1).schema.with_metadata({EXAMPLES_KEY: with_digest(_about(self))})
        options: dict[str, Any] = {
            "compression": "zstd",
            "use_dictionary": [name for name in schema.names if name not in NUMBERS and not name.startswith(SHARE)],
            "dictionary_pagesize_limit": 1 << 26,
            "data_page_size": 1 << 23,
            "write_page_checksum": True,
        }
        with whole(path, EXAMPLES_FILE) as new, parquet.ParquetWriter(new, schema, **options) as writer:
            for a, b in _parts(self):
                writer.write_table(_long(self, a, b).cast(schema), row_group_size=ROWS_AT_ONCE + len(self.ids))
        return path

    @classmethod
    def read(cls, path: str | Path) -> Predictions:
        """Read a file of :meth:`write`; raises DataError if it is missing, damaged or something else."""
        import pyarrow.parquet as parquet

        path = Path(path)
        if not path.is_file():
            raise DataError("does not exist; expected a file of evaluated examples.", file=path)
        with open_parquet(path) as file:
            schema = file.schema_arrow
            about = about_in(file, EXAMPLES_KEY, path)
            if about.get("format") not in EXAMPLES_FORMATS:
                raise DataError(
                    "this is not a file of evaluated examples (ROWS.examples.parquet, which probekit probe writes next "
                    "to its rows).",
                    file=path,
                )
            names = [name for name in schema.names if name in VALUES or name.startswith(SHARE)]
            options: dict[str, Any] = {"read_dictionary": ["id"], "page_checksum_verification": True}
            columns = {name: parquet.read_table(path, columns=[name], **options)[name] for name in names}
            return cls._of(about, columns, path)

    @classmethod
    def _of(cls, about: Mapping[str, Any], columns: Mapping[str, Any], path: Path) -> Predictions:
        """Predictions from the columns and the metadata of a file."""
        import pandas as pd

        shape, shares = (len(about["fits"]), int(about["n"])), [name for name in columns if name.startswith(SHARE)]
        if short := [name for name, column in columns.items() if len(column) != shape[0] * shape[1]]:
            raise DataError(f"{', '.join(short)} do not hold {shape[0]} fits of {shape[1]} examples.", file=path)
        first = {name: np.asarray(columns[name][: shape[1]].to_pylist()) for name in ONCE if name in columns}
        whole = {name: columns[name].to_numpy().reshape(shape) for name in columns if name not in (*first, *shares)}
        fits = pd.DataFrame(about["fits"], columns=about["columns"])
        fits = make_fits(upgrade_fits(fits) if about["format"] == BEFORE else fits)
        is_gold = (fits["target"] == "gold").to_numpy(dtype=bool)
        probabilities = [columns[name].to_numpy().reshape(shape)[is_gold] for name in shares]
        return cls(
            fits,
            first["id"].astype(str),
            whole["gold"][0].copy() if about["one_gold"] else whole["gold"],
            whole["predicted"],
            tuple(about["metrics"]),
            first.get("group"),
            whole.get("log_loss"),
            tuple(about["label_names"]),
            whole.get("prior_loss"),
            first.get("sentence"),
            np.stack(probabilities, axis=2) if shares else None,
            first.get("prompt"),
            first["of_label"] if "of_label" in first else _from_ids(fits, first["id"].astype(str)),
        )


def _from_ids(fits: pd.DataFrame, ids: np.ndarray) -> np.ndarray | None:
    """The label of each row of files that have it only in their ids, "EXAMPLE/LABEL"; None for one label."""
    count = int(fits["labels"].max()) if "labels" in fits and fits["labels"].notna().all() else 1
    if count < 2 or len(ids) % count:
        return None
    example = ids[0][: 1 + ids[0].rfind("/")]
    names = np.char.replace(ids[:count], example, "", count=1)
    of_label = np.tile(names, len(ids) // count)
    return of_label if example and np.char.endswith(ids, np.char.add("/", of_label)).all() else None


def join(*evaluated: Predictions) -> Predictions:
    """The fits of several tables for the same examples, in the order of the first table.

    If the tables group the examples differently, overlapping groups are joined. A column ``source`` (0, 1 …) is added
    to ``fits``.

    Raises
    ------
    UsageError
        If the examples differ.
    """
    import pandas as pd

    first, parts = evaluated[0], []
    groups = first.groups
    for i, other in enumerate(evaluated):
        if len(other.ids) == len(first.ids) and (other.ids == first.ids).all():
            order = np.arange(len(first.ids))
        else:
            place = {name: at for at, name in enumerate(other.ids)}
            missing = [name for name in first.ids if name not in place]
            if missing or len(place) != len(first.ids) or len(other.ids) != len(first.ids):
                reason = f"{str(missing[0])!r} is in the first only" if missing else "ids are repeated, or more in one"
                raise UsageError(
                    "the first and the second were evaluated on different examples "
                    f"({len(first.ids)} and {len(other.ids)}; {reason}), and a comparison needs the same ones. Probe "
                    "both with the same dev cache."
                )
            order = np.array([place[name] for name in first.ids])
        other_groups = None if other.groups is None else other.groups[order]
        if other_groups is not None and (groups is None or (other_groups != groups).any()):
            groups = merged(groups, other_groups)
        if other.label_names != first.label_names:
            raise UsageError("the two have different label names, so their codes differ in meaning.")
        about = None if other.of_label is None else other.of_label[order]
        if not np.array_equal(about, first.of_label):  # type: ignore[arg-type]
            raise UsageError(
                "only one of the two says which label each row is about, or they differ in it, and means over labels "
                "need it. Probe both with the same version."
            )
        gold = np.broadcast_to(other.gold, other.predicted.shape)[:, order]
        losses = [None if v is None else v[:, order] for v in (other.log_loss, other.prior_loss, other.probabilities)]
        parts.append((other.fits.assign(source=i), gold, other.predicted[:, order], *losses))
    fits, gold, predicted, loss, prior, shares = zip(*parts, strict=True)
    if len({np.shape(x)[2] for x in shares if x is not None}) > 1:
        raise UsageError("the two have probabilities for different classes, so their codes differ in meaning.")
    return Predictions(
        pd.concat(fits, ignore_index=True),
        first.ids,
        np.concatenate(gold),
        np.concatenate(predicted),
        tuple(name for name in first.metrics if all(name in e.metrics for e in evaluated)) or first.metrics,
        groups,
        None if any(x is None for x in loss) else np.concatenate(loss),
        first.label_names,
        None if any(x is None for x in prior) else np.concatenate(prior),
        first.groups if first.sentences is None and groups is not first.groups else first.sentences,
        None if any(x is None for x in shares) else np.concatenate(shares),
        first.prompts,
        first.of_label,
    )


def by_split(found: Iterable[Predictions]) -> list[Predictions]:
    """Join predictions into one table per task and split, for all models."""
    splits: dict[tuple[str, str], list[Predictions]] = {}
    for one in found:
        splits.setdefault((one.task, one.split), []).append(one)
    return [join(*same) if len(same) > 1 else same[0] for same in splits.values()]


def _about(e: Predictions) -> dict[str, Any]:
    columns = [e.fits[name].astype(object).where(e.fits[name].notna(), None) for name in e.fits.columns]
    plain = [[getattr(v, "item", lambda v=v: v)() for v in column] for column in columns]
    return {
        "format": FORMAT if e.of_label is None else SEVERAL,
        "n": len(e.ids),
        "metrics": list(e.metrics),
        "label_names": list(e.label_names),
        "one_gold": e.gold.ndim == 1,
        "columns": list(e.fits.columns),
        "fits": [list(row) for row in zip(*plain, strict=True)],
    }


def _parts(e: Predictions) -> list[tuple[int, int]]:
    step = max(1, ROWS_AT_ONCE // max(1, len(e.ids)))
    return [(at, min(at + step, len(e))) for at in range(0, len(e), step)]


def _long(e: Predictions, start: int, stop: int) -> Any:
    """Fits start … stop - 1 as an Arrow table."""
    import pyarrow as pa

    n, count = len(e.ids), stop - start
    fit = np.repeat(np.arange(count, dtype=np.int32), n)
    example = np.tile(np.arange(n, dtype=np.int32), count)
    columns: dict[str, Any] = {}
    for name in e.fits.columns:
        whole = pa.array(e.fits[name], from_pandas=True)
        if isinstance(whole, pa.ChunkedArray):  # pandas' strings
            whole = whole.combine_chunks()
        if pa.types.is_large_string(whole.type) or pa.types.is_null(whole.type):
            whole = whole.cast(pa.string())
        encoded = whole.dictionary_encode()
        columns[str(name)] = pa.DictionaryArray.from_arrays(
            encoded.indices.take(pa.array(fit + start)), encoded.dictionary
        )
    columns["id"] = pa.DictionaryArray.from_arrays(pa.array(example), pa.array(np.asarray(e.ids).astype(str).tolist()))
    if e.groups is not None:
        columns["group"] = pa.array(np.asarray(e.groups)[example])
    if e.sentences is not None:
        columns["sentence"] = pa.array(np.asarray(e.sentences)[example])
    if e.of_label is not None:
        columns["of_label"] = pa.array(e.of_label[example].tolist()).dictionary_encode()
    if e.prompts is not None:
        prompts = pa.array(np.asarray(e.prompts).astype(str).tolist())
        columns["prompt"] = pa.DictionaryArray.from_arrays(pa.array(example), prompts)
    gold = np.broadcast_to(e.gold, e.predicted.shape)
    numbers = {name: getattr(e, name) for name in NUMBERS}
    for name, value in {"gold": gold, **numbers}.items():
        if value is not None:
            columns[name] = pa.array(np.ascontiguousarray(value[start:stop]).ravel())
    for c in range(0 if e.probabilities is None else e.probabilities.shape[2]):
        known = e.is_gold[start:stop]
        share = np.zeros((count, n), dtype=np.float32)
        share[known] = e.probabilities[e.is_gold[:start].sum() :][: known.sum(), :, c]  # type: ignore[index]
        columns[f"{SHARE}{c}"] = pa.array(share.ravel(), mask=np.repeat(~known, n))
    return pa.table(columns)
