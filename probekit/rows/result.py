"""What an analysis returns: its rows, the predictions for each example, and the recipe that makes them again.

::

    result = probekit.probe("cola.train.h5", "cola.dev.h5")
    result.compare("shuffled")
    result.plot()
    result.save("cola.parquet")
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import DataError, UsageError, reading
from probekit.files import digest_of_content, read_json
from probekit.functions import FUNCTIONS
from probekit.metrics import metric as metric_called
from probekit.recipe import Read, Recipe
from probekit.rows.card import card_path, find_card, make_card, read_card
from probekit.rows.examples import EXAMPLES, examples_of, examples_path, told_by
from probekit.rows.files import card_of, check_out, read_rows, saved_examples, write_rows
from probekit.rows.schema import called, layer_labels, make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Result", "read"]

log = logging.getLogger(__name__)
PREDICTIONS = "probekit.statistics.predictions:Predictions"
COMPARE, SUMMARY = "probekit.analyses.comparison:compare", "probekit.analyses.comparison:summary"
VERDICT = "probekit.analyses.verdict:verdict"
PLOTS = {
    "probe": "probekit.plots:layer_curve",
    "mi": "probekit.plots:layer_curve",
    "mdl": "probekit.plots:layer_curve",
    "compare": "probekit.plots:layer_differences",
    "train": "probekit.plots:mix_weights",
    "domains": "probekit.plots:domain_matrix",
    "transfer": "probekit.plots:transfer_matrix",
}
"""How each analysis is drawn on one Axes. Nothing here imports plots or statistics: names are looked up late."""
SHOWN = ("task", "split", "model", "checkpoint", "step", "regime", "head", "variant", "representation", "estimator")
COMPARED = ("domain_a", "domain_b", "against", "prefer")
TITLE = ("task", "split", "model", "checkpoint", "step", "representation")
"""The columns that a result's title names."""
CURVE = (*SHOWN, "analysis", "trained_on", "target", "metric", "seed")


@dataclass(frozen=True, eq=False)
class Result:
    """Rows, the predictions for each example, and where they come from.

    Attributes
    ----------
    rows : DataFrame
        One measured number a row; see :data:`probekit.rows.COLUMNS`.
    predictions : tuple of Predictions
        The predictions for each example, one table for each task and split; () if there are none.
    recipe : Recipe or None
        What makes it again; None for rows that no public function made.
    reads : tuple of Read
        What it was made of, with digests.
    seconds : mapping
        How long it took, by stage.
    card : mapping
        The evidence card of the file that it was read from; {} if it was not read from a file.
    path : Path or None
        Where it is saved.
    """

    rows: pd.DataFrame
    predictions: tuple[Any, ...] = ()
    recipe: Recipe | None = None
    reads: tuple[Read, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None

    def save(self, path: str | Path) -> Result:
        """Write the rows, their evidence card beside them, and the predictions for each example.

        They take the place of what was saved under this name, its predictions among them.

        Parameters
        ----------
        path : path
            ``ROWS.parquet`` or ``ROWS.csv``. The card is ``ROWS.parquet.json``; examples are
            ``ROWS.examples.parquet``, with task and split in the name where there are several.

        Returns
        -------
        Result
            This one, which knows where it is saved.

        Raises
        ------
        UsageError
            For another suffix, a file that is not ours in the card's place, and the place of what it was made of.
        """
        path, recipe = Path(path), self.recipe
        check_out(path, recipe and recipe.arguments)
        if recipe and FUNCTIONS[recipe.function].rows and not FUNCTIONS[recipe.function].inside:
            recipe = replace(recipe, leaves={**recipe.leaves, FUNCTIONS[recipe.function].rows: str(path)})
        card = make_card(recipe, self.reads, self.seconds) if recipe else dict(self.card)
        card |= {"verdict": list(self.verdict)}
        before, paths = saved_examples(path), self.prediction_paths(path)
        for one, to in zip(self.predictions, paths, strict=True):
            one.write(to)
        write_rows(self.rows, path, {**card, "examples": [digest_of_content(to) for to in paths]})
        for old in before:
            if old not in paths:
                old.unlink()
        return replace(self, recipe=recipe, card=read_card(path), path=path)

    def prediction_paths(self, path: Path) -> list[Path]:
        """Where what was said of each example goes, beside rows at ``path``."""
        if len(self.predictions) < 2:
            return [examples_path(path) for _ in self.predictions]
        names = [f"{Path(one.task).stem.replace(':', '-')}-{one.split}" for one in self.predictions]
        return [examples_path(path, name) for name in names]

    def prediction_files(self) -> list[Path]:
        """The files of what was said of each example; [] of a result that is not saved."""
        if self.path is None:
            return []
        return [self.path] if self.path.name.endswith(EXAMPLES) else self.prediction_paths(self.path)

    @cached_property
    def verdict(self) -> tuple[str, ...]:
        """What the rows show, in sentences; () for an analysis that has none. See :mod:`probekit.analyses.verdict`."""
        return tuple(_called(VERDICT)(self))

    def best(self) -> pd.DataFrame:
        """The best layer of each curve, one row a curve.

        The best of several layers looks better than it is: its interval is the one that holds all layers at once
        (``joint_low``, ``joint_high`` of the rows), where there is one. Whether it differs ``compare("best")`` tests.
        """
        rows = self.rows[self.rows["layer"].notna() & self.rows["value"].notna()]
        gold = rows[(rows["target"] == "gold") & rows["draw"].isna()]
        keys = [c for c in CURVE if c in gold]
        found = []
        for _, curve in gold.groupby(keys, sort=False, dropna=False):
            if (own := metric_called(str(curve["metric"].iloc[0]))).better:
                found.append(curve.iloc[[own.best(curve["value"].to_numpy(dtype=float))]])
        import pandas as pd

        best = pd.concat(found, ignore_index=True) if found else gold.iloc[:0]
        joint = [c for c in ("joint_low", "joint_high") if c in best]
        for end, c in zip(("ci_low", "ci_high"), joint, strict=False):
            best[end] = best[c].fillna(best[end])
        return best.drop(columns=joint)

    def summary(self, **options: Any) -> Result:
        """Layer curves in a few numbers, with intervals: see :func:`probekit.summary`."""
        return _called(SUMMARY)(self, **options)

    def compare(self, against: Any = None, **options: Any) -> Result:
        """Paired differences: see :func:`probekit.compare`.

        Parameters
        ----------
        against : str or Result, optional
            "shuffled", "best", "layer-0" …, or another result of the same examples.
        **options
            Of :func:`probekit.compare`.
        """
        compare = _called(COMPARE)
        if against is None or isinstance(against, str):
            return compare(self, against=against, **options)
        return compare(self, against, **options)

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the rows on one Axes, as befits the analysis; UsageError for one that has no such figure."""
        kinds = set(self.rows["analysis"])
        if len(kinds) != 1 or not kinds <= PLOTS.keys():
            raise UsageError(
                f"rows of {', '.join(sorted(map(str, kinds)))} have no figure of one panel; see probekit.plots."
            )
        return _called(PLOTS[kinds.pop()])(self.rows, ax=ax, **options)

    def file(self) -> Path | None:
        """Where it is saved; None where it is not, or where something else was written there since."""
        if self.path is None or not self.card:
            return self.path
        try:
            return self.path if read_card(self.path).get("rows") == self.card.get("rows") else None
        except (DataError, OSError):
            return None

    def __recipe__(self) -> Any:
        """As an argument of another recipe: its file, or else how it is made."""
        if (path := self.file()) is not None:
            return str(path)
        return {"object": "probekit.Result"} if self.recipe is None else {"recipe": self.recipe.to_json()}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """As an argument of a recipe it is checked to be one, not taken apart."""
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    @property
    def title(self) -> str:
        """A line that says what it is of."""
        if self.rows.empty:
            return "no rows"
        layered = self.rows[self.rows["site"] != ""]
        head = (layered if len(layered) else self.rows).iloc[0]
        told = [c for c in ("task", "split") if self.rows[c].nunique() == 1]
        what = " ".join(str(head[c]) for c in told if head[c]) or f"{self.rows['task'].nunique()} tasks"
        models = self.rows["model"].nunique()
        return f"{head['analysis'] or 'rows'}: {what}, {called(head) if models == 1 else f'{models} models'}"

    def __repr__(self) -> str:
        said = f", {sum(len(one.ids) for one in self.predictions):,} examples" if self.predictions else ""
        return f"<Result {self.title}; {len(self.rows):,} rows{said}>"

    def _repr_html_(self) -> str:
        best = self.best()
        shown = best if len(best) else self._first_rows()
        table = shown[[c for c in (*SHOWN, *COMPARED) if c in shown and self._is_informative(shown[c])]]
        if shown["layer"].notna().any():
            table = table.assign(layer=layer_labels(shown))
        table = table.assign(**{c: shown[c].round(4) for c in ("metric", "value", "ci_low", "ci_high")})
        caption = "The best layer of each curve, with an interval for all layers at once." if len(best) else ""
        return (
            f"<p><b>{escape(self.title)}</b>; {len(self.rows):,} rows. {escape(caption)}</p>"
            f"{table.to_html(index=False, escape=True, max_rows=20, na_rep='')}"
            + "".join(f"<p>{escape(sentence)}</p>" for sentence in self.verdict)
            + (f"<p><code>{escape(str(self.recipe))}</code></p>" if self.recipe and self.recipe.is_command else "")
        )

    def _first_rows(self) -> pd.DataFrame:
        """Up to ten rows on gold labels, those of the first metric where there are more."""
        gold = self.rows[(self.rows["target"] == "gold") & self.rows["draw"].isna()]
        if len(gold) > 10:
            gold = gold[gold["metric"] == gold["metric"].iloc[0]]
        return (gold if len(gold) else self.rows).head(10)

    @staticmethod
    def _is_informative(column: pd.Series) -> bool:
        """Whether a column says more than the title does: it varies, or the title does not name it."""
        if column.nunique(dropna=False) > 1:
            return True
        return column.name not in TITLE and bool(column.notna().all() and column.ne("").all())


def _called(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def read(path: str | Path) -> Result:
    """The result that was saved at ``path``.

    Parameters
    ----------
    path : path
        Of its rows (``ROWS.parquet``, ``ROWS.csv``), or of ``ROWS.examples.parquet`` alone.

    Raises
    ------
    DataError
        Where there is no such file, or it is none of these.
    """
    if not isinstance(path, str | Path):
        raise UsageError(
            f"rows are named by their path, 'ROWS.parquet', not by a {type(path).__name__}; give each file as an "
            "argument of its own."
        )
    path = Path(path)
    if path.name.endswith(EXAMPLES):
        one = _called(PREDICTIONS).read(path)
        rows = one.fits.assign(metric=one.metrics[0], value=float("nan"))
        return Result(make_rows(rows), (one,), path=path)
    rows = read_rows(path)
    found = examples_of(path)
    if not found and not path.with_suffix(".parquet").exists():
        found = examples_of(path, path.stem)  # as version 0.1 named those of a .csv
    card = _card(path)
    with reading(path, "rows with an evidence card"):
        recipe, reads, seconds = _of_card(card)
    said = tuple(_called(PREDICTIONS).read(p) for p in told_by(card, found))
    if not isinstance(card.get("examples"), list):  # nothing but the names says that they belong together
        for one, place in zip(said, found, strict=True):
            _check_fits(rows, one.fits, place)
    return Result(rows, said, recipe, reads, seconds, card, path)


def _card(path: Path) -> dict[str, Any]:
    """The evidence card of rows; {} where there is none, or one of other rows. Raises DataError for a damaged one."""
    beside = card_path(path)
    if beside.is_file():
        with reading(beside, "an evidence card"):
            read_json(beside)
    if not (card := card_of(path)) and find_card(path):
        log.warning("%s describes other rows than %s holds now, so it is left aside.", find_card(path), path.name)
    return card


def _check_fits(rows: pd.DataFrame, fits: pd.DataFrame, place: Path) -> None:
    """Raise DataError where examples are of fits that the rows beside do not hold."""
    names = ("task", "split", "model", "checkpoint", "representation")
    known = [name for name in names if name in fits and name in rows]
    strange = set(fits[known].fillna("").astype(str).itertuples(index=False, name=None)) - set(
        rows[known].fillna("").astype(str).itertuples(index=False, name=None)
    )
    if strange:
        raise DataError(
            f"holds examples of {', '.join(filter(None, sorted(strange)[0]))}, and the rows beside it do not. Make the "
            "rows again, or keep the two apart.",
            file=place,
        )


def _of_card(card: Mapping[str, Any]) -> tuple[Recipe | None, tuple[Read, ...], dict[str, float]]:
    """The recipe, what was read and how long it took, as far as a card tells."""
    recipe = None
    if told := card.get("recipe"):
        try:
            recipe = Recipe.from_json(told)
        except UsageError:
            recipe = None  # of a later version
    reads = tuple(
        Read(r["path"], r["kind"], r["digest"], {k: v for k, v in r.items() if k not in ("path", "kind", "digest")})
        for r in card.get("reads", ())
    )
    return recipe, reads, dict(card.get("seconds", {}))
