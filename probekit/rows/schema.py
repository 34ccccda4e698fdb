"""The columns of rows: keys that identify a measured number, the number, and its sample size.

A row is one measured number. Plots, tables and reports select rows by columns, and never parse names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from probekit.display import shown_checkpoint
from probekit.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("analysis", "task", "split", "trained_on", "model", "checkpoint", "step", "regime", "head", "variant"),
    *("site", "layer", "position", "representation", "estimator", "target", "draw"),
    *("metric", "value", "ci_low", "ci_high", "p", "seed", "n"),
)
"""The columns that come first, in this order.

analysis : the public function that measured; task, split, model : names
trained_on, checkpoint, step, regime, head, variant : for a trained model: its training task, the name of its run,
    the step, "fine-tune" or "feature-extraction", its task model, and the study's name for such runs
site, layer : the place in the model: "resid_post" and 0 … L, "final_norm" without a number, "" if no layer is read
position, representation : which tokens, and how they become a vector; estimator : the method
target : "gold", or the name of a control; draw : the number of one draw of a control, missing for summaries of draws
metric : a name of :data:`probekit.metrics.METRICS`; value, ci_low, ci_high : NaN where undefined or not estimated
p : for the analysis's null hypothesis, before any correction; seed : Int64 or missing
n : number of examples
"""
KEYS = tuple(c for c in COLUMNS if c not in ("value", "ci_low", "ci_high", "p", "n"))
"""The columns that identify a row."""
FIT = tuple(c for c in COLUMNS if c not in ("metric", "value", "ci_low", "ci_high", "p"))
"""The columns that identify the fit of an evaluated example."""
TEXT = (
    *(
        "analysis",
        "task",
        "split",
        "trained_on",
        "model",
        "checkpoint",
        "regime",
        "head",
        "variant",
        "site",
        "position",
    ),
    *("representation", "estimator", "target", "metric"),
)
WHOLE = ("step", "layer", "draw", "seed", "n")
OWN_WHOLE = ("random_weights", "run_seed")
"""Further integer columns: the seed of random weights, and of a training run."""
REAL = ("value", "ci_low", "ci_high", "p")
OWN_NUMBERS = (
    *("n_train", "left_out", "left_out_train", "left_out_dev", "unread_words", "seen_in_train", "held_out", "classes"),
    *("documents_a", "documents_b", "outside_a", "outside_b", "seeds", "fine_tune_seeds", "feature_extraction_seeds"),
    *("examples", "runs", "trials", "controls", "draws", "shuffles", "features_kept", "buckets", "bins", "epoch"),
    *("portion", "sent", "penalty", "decrement", "p_adjusted", "p_equal", "joint_low", "joint_high", "value_unseen"),
    *("raw", "null_mean", "null_sd", "null_high", "null_share", "share", "share_a", "share_b", "margin", "sd"),
    *("unexplained", "active", "dead", "latents"),
    *("weight_bits", "label_bits", "uniform_bits", "penalty_bits", "entropy", "fine_tune", "feature_extraction"),
)
"""Columns of single analyses that hold numbers; if another program has made text of them, they are read as numbers."""
OWN_FLAGS = ("converged", "penalty_at_edge", "headline", "kept")
"""Columns of single analyses that are true or false."""
NEEDED = ("task", "split", "model", "representation", "estimator", "target", "metric", "value", "n")
RESIDUAL, FINAL = "resid_post", "final_norm"


def make_rows(records: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Records as rows: the columns in order, with their dtypes.

    Parameters
    ----------
    records : iterable of mapping, or DataFrame
        One mapping per row. ``layer`` may be a number, "0" … "L", "final_norm" or None; ``site`` follows from it if it
        is missing. Only the columns in ``NEEDED`` are required; columns that are not in COLUMNS follow in order of
        appearance.

    Raises
    ------
    DataError
        If a column is missing, or a value is not valid; the message names the column, and the row.
    """
    import pandas as pd

    rows = pd.DataFrame(records if isinstance(records, pd.DataFrame) else list(records))
    if _is_typed(rows, COLUMNS, pd.StringDtype()):
        return _upright(rows)
    if rows.empty:
        rows = pd.DataFrame(columns=list(COLUMNS))
    missing = [c for c in NEEDED if c not in rows]
    if missing:
        raise DataError(f"rows lack the columns {', '.join(missing)}; they have {', '.join(map(str, rows.columns))}.")
    return _upright(_typed(rows, COLUMNS))


def _upright(rows: pd.DataFrame) -> pd.DataFrame:
    if (upside_down := rows["ci_low"] > rows["ci_high"]).any():
        raise DataError(f"row {_first(upside_down)}: the interval is upside down (ci_low > ci_high).")
    return rows


def make_fits(records: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Records as fits: the columns of rows that identify a fit, then their further columns.

    Parameters
    ----------
    records : iterable of mapping, or DataFrame
        One mapping per fit, as in :func:`make_rows`; any column may be missing.
    """
    import pandas as pd

    if isinstance(records, pd.DataFrame) and _is_typed(records, FIT, "string"):  # text of either missing value
        return records
    return _typed(pd.DataFrame(records if isinstance(records, pd.DataFrame) else list(records)), FIT)


def _is_typed(rows: pd.DataFrame, columns: tuple[str, ...], text: Any) -> bool:
    """Whether :func:`_typed` would change nothing; text : the dtype of text"""
    import pandas as pd

    kinds = _kinds(()) | dict.fromkeys(TEXT, text)
    in_order = tuple(rows.columns[: len(columns)]) == columns and "layer_name" not in rows
    in_kind = all(
        dtype == kinds[name] if name in kinds else dtype.kind != "O" or _own(column := rows[name]) is column
        for name, dtype in rows.dtypes.items()
    )
    if not in_order or not in_kind or any(rows[name].hasnans for name in TEXT if name in columns):
        return False
    placed = rows["layer"].notna().to_numpy() <= (rows["site"] != "").to_numpy(dtype=bool)
    return bool(placed.all()) and rows.index.equals(pd.RangeIndex(len(rows)))


def _typed(rows: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """These columns first, in order and with their dtypes; ``site`` and ``layer`` are parsed from layer names."""
    import pandas as pd

    names = rows["layer_name"] if "layer_name" in rows else rows.get("layer")
    rows = rows.drop(columns="layer_name", errors="ignore").reset_index(drop=True)
    if names is not None:
        places = [_place(_label(name)) for name in names]
        sites = rows["site"].fillna("") if "site" in rows else [""] * len(rows)
        rows["site"] = [given or parsed for given, (parsed, _) in zip(sites, places, strict=True)]
        rows["layer"] = [number for _, number in places]
    kinds = _kinds(columns)
    missing = cache(lambda kind: pd.Series("" if kind == pd.StringDtype() else None, index=rows.index, dtype=kind))
    order = (*columns, *(c for c in rows.columns if c not in columns))
    made = {c: _column(rows[c], kinds.get(c)) if c in rows else missing(kinds.get(c)) for c in order}
    return pd.DataFrame(made, index=rows.index)


def _kinds(columns: Iterable[str]) -> dict[str, Any]:
    """The dtype of each column that has one; text only among these columns."""
    import pandas as pd

    text = dict.fromkeys((name for name in TEXT if name in columns), pd.StringDtype())
    return text | dict.fromkeys((*WHOLE, *OWN_WHOLE), "Int64") | dict.fromkeys(REAL, "float64")


def _column(column: pd.Series, kind: Any) -> pd.Series:
    """A column with its dtype, if it has one; text that is missing is ""."""
    import pandas as pd

    if kind is None:
        return _own(column)
    text = kind == pd.StringDtype()
    if column.dtype == kind and not (text and column.hasnans):
        return column
    return column.fillna("").astype("string") if text else _numbers(column, whole=kind == "Int64")


def _own(column: pd.Series) -> pd.Series:
    """A column of a single analysis, with numbers and truth where another program has made text of them."""
    import pandas as pd

    if column.name not in (*OWN_NUMBERS, *OWN_FLAGS):
        return column
    if not pd.api.types.is_string_dtype(column.dropna()) or column.isna().all():
        return column
    if column.name in OWN_NUMBERS:
        return _numbers(column, whole=False)
    flags = column.str.lower().map({"true": True, "false": False, "1": True, "0": False})
    if (bad := flags.isna() & column.notna()).any():
        found = column[bad].iloc[0]
        raise DataError(f"row {_first(bad)}, column {column.name!r}: {found!r} is neither true nor false.")
    return flags


def layer_order(rows: pd.DataFrame) -> pd.Series:
    """Sort keys for layers: their numbers, then sites without a number, such as "final_norm"; float64."""
    return rows["layer"].astype("float64").fillna(float("inf"))


def layer_labels(rows: pd.DataFrame) -> pd.Series:
    """Display names of layers: "0" … "L", "final_norm", "attn_out.2", "" if no layer is read."""
    numbers = rows["layer"].astype("Int64").astype("string")
    sites = rows["site"].astype("string").fillna("").replace(RESIDUAL, "")
    return (sites + ("." + numbers).where(sites != "", numbers).fillna("")).astype("string")


def fit_labels(rows: pd.DataFrame) -> pd.Series:
    """Display names of methods: the estimator, or for trained models "fine-tune linear" with the variant."""
    parts = rows.reindex(columns=["estimator", "regime", "head", "variant"]).fillna("").astype("string")
    names = parts["estimator"].where(parts["estimator"] != "", (parts["regime"] + " " + parts["head"]).str.strip())
    return (names + ", " + parts["variant"]).str.removesuffix(", ")


def called(row: Mapping[Any, Any] | pd.Series) -> str:
    """The name of a row's model, the same wherever it is shown: the model, its states, and the representation.

    Examples
    --------
    >>> called({"model": "minilm", "checkpoint": "mrpc", "step": 47, "regime": "fine-tune", "representation": "mean"})
    'minilm, fine-tuned, run mrpc, step 47, mean'
    >>> called({"model": "minilm", "checkpoint": "mrpc", "step": 0, "regime": "fine-tune"})
    'minilm, before training, run mrpc, step 0'
    >>> called({"model": "minilm", "checkpoint": "random-0"})
    'minilm, random weights'
    """
    return ", ".join(dict.fromkeys(filter(None, (_text(row, "model"), *states(row), _text(row, "representation")))))


def states(row: Mapping[Any, Any] | pd.Series) -> list[str]:
    """What a row's model is beside its name, in words: random weights; fine-tuned, the run, the step.

    A run may be called "random-42" as well: what has random weights says so in ``random_weights``, if the row has it.
    """
    checkpoint, regime, step = (_text(row, name) for name in ("checkpoint", "regime", "step"))
    tuned, random = regime == "fine-tune" and bool(checkpoint), shown_checkpoint(checkpoint)
    if random != checkpoint and not (tuned or step) and ("random_weights" not in row or _text(row, "random_weights")):
        return [random]
    run = "" if checkpoint == _text(row, "model") else checkpoint
    if run and (tuned or random != checkpoint):
        run = f"run {run}"
    state = ("before training" if step and not float(step) else "fine-tuned") if tuned else ""
    return list(filter(None, (state, run, f"step {int(float(step)):,}" if step else "")))


def identified(row: Mapping[Any, Any] | pd.Series) -> str:
    """A row's model as rows name it in a column of another model: model, checkpoint, step and representation."""
    step = f"step {int(float(step)):,}" if (step := _text(row, "step")) else ""
    parts = (_text(row, "model"), _text(row, "checkpoint"), step, _text(row, "representation"))
    return ", ".join(dict.fromkeys(filter(None, parts)))


def _text(row: Mapping[Any, Any] | pd.Series, name: str) -> str:
    """A value of a row as text; "" if it is missing."""
    return "" if (text := str(row.get(name, ""))) in ("<NA>", "nan", "None") else text


def _label(layer: Any) -> str:
    import pandas as pd

    return layer if isinstance(layer, str) else "" if pd.isna(layer) else str(int(layer))


def _place(name: str) -> tuple[str, int | None]:
    """Site and number of "3", "final_norm", "attn_out.2" and ""; other names are not split."""
    site, _, number = name.partition(".")
    if name.isdecimal():
        return RESIDUAL, int(name)
    return (site, int(number)) if number.isdecimal() else (name, None)


def _numbers(column: pd.Series, *, whole: bool) -> pd.Series:
    import pandas as pd

    if pd.api.types.is_integer_dtype(column.dtype):
        return column.astype("Int64" if whole else "float64")
    numbers = pd.to_numeric(column, errors="coerce")
    bad = numbers.isna() & column.notna()
    if whole:
        bad |= numbers.notna() & (numbers % 1 != 0).fillna(value=False)
    if bad.any():
        expected = "a whole number" if whole else "a number"
        raise DataError(f"row {_first(bad)}, column {column.name!r}: {column[bad].iloc[0]!r} is not {expected}.")
    return numbers.astype("Int64") if whole else numbers.astype("float64")


def _first(bad: pd.Series) -> int:
    return int(bad.to_numpy(dtype=bool).nonzero()[0][0]) + 1
