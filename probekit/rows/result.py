"""The result of an analysis: its rows, the predictions for each example, and the recipe to reproduce them.

::

    result = probekit.probe("cola.train.h5", "cola.dev.h5")
    result.compare("permuted")
    result.plot()
    result.save("cola.parquet")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.analysis import analyses, load
from probekit.calls import checked
from probekit.errors import DataError, UsageError, reading
from probekit.files import digest_of_content, read_json
from probekit.functions import find, rows_of
from probekit.grid import Grid, to_html
from probekit.recipe import Read, Recipe
from probekit.rows.card import card_path, make_card, read_card
from probekit.rows.examples import EXAMPLES, examples_of, examples_path, told_by
from probekit.rows.files import card_of, check_out, read_rows, saved_examples, write_rows
from probekit.rows.schema import called, layer_labels, make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PREDICTIONS, BY_SPLIT = "probekit.statistics.predictions:Predictions", "probekit.statistics.predictions:by_split"
VERDICT, TABLES = "probekit.analyses.verdict:verdict", "probekit.view:tables"
PLOTS = {"train": "probekit.plots:mix_weights", "transfer": "probekit.plots:transfer_matrix"}
"""The plot of each analysis on one Axes. This module does not import plots or statistics; names are looked up late."""
SHOWN = ("task", "split", "model", "checkpoint", "step", "regime", "head", "variant", "representation", "estimator")
COMPARED = ("domain_a", "domain_b", "against", "prefer")
TITLE = ("task", "split", "model", "checkpoint", "step", "representation")
"""The columns that a result's title names."""
CURVE = (*SHOWN, "analysis", "trained_on", "target", "metric", "seed")


@dataclass(frozen=True, eq=False)
class Result:
    """Rows, the predictions for each example, and their origin.

    Attributes
    ----------
    rows : DataFrame
        One measured number per row; see :data:`probekit.rows.COLUMNS`.
    predictions : tuple of Predictions
        The predictions for each example, one table for each task and split; () if there are none.
    recipe : Recipe or None
        The recipe that reproduces it; None for rows that do not come from a public function.
    reads : tuple of Read
        Its inputs, with digests.
    seconds : mapping
        Running time by stage.
    card : mapping
        The evidence card of its file; {} if it was not read from a file.
    path : Path or None
        The file, if it is saved.
    """

    rows: pd.DataFrame
    predictions: tuple[Any, ...] = ()
    recipe: Recipe | None = None
    reads: tuple[Read, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None

    def save(self, path: str | Path) -> Result:
        """Write the rows, their evidence card, and the predictions for each example.

        They replace a result that was saved under this name, including its predictions.

        Parameters
        ----------
        path : path
            ``ROWS.parquet`` or ``ROWS.csv``. The card is ``ROWS.parquet.json``; examples are
            ``ROWS.examples.parquet``, with task and split in the name if there are several.

        Returns
        -------
        Result
            This result, with ``path`` and ``card``.

        Raises
        ------
        UsageError
            If the suffix is not .parquet or .csv, ``path`` is an input of the result, or probekit did not write a file
            that would be replaced.
        """
        path, recipe = Path(path), self.recipe
        check_out(path, recipe and recipe.arguments)
        key, inside = rows_of(recipe.function) if recipe else ("", "")
        if recipe and key and not inside:
            recipe = replace(recipe, leaves={**recipe.leaves, key: str(path)})
        card = make_card(recipe, self.reads, self.seconds) if recipe else dict(self.card)
        card |= {"verdict": list(self.verdict)}
        before, paths = saved_examples(path), self.prediction_paths(path)
        for predictions, to in zip(self.predictions, paths, strict=True):
            predictions.write(to)
        write_rows(self.rows, path, {**card, "examples": [digest_of_content(to) for to in paths]})
        for old in before:
            if old not in paths:
                old.unlink()
        saved = replace(self, recipe=recipe, card=read_card(path), path=path)
        vars(saved)["verdict"] = self.verdict  # of the same rows: comparisons take seconds
        return saved

    def prediction_paths(self, path: Path) -> list[Path]:
        """The files for the predictions, next to rows at ``path``."""
        if len(self.predictions) < 2:
            return [examples_path(path) for _ in self.predictions]
        names = [
            f"{Path(predictions.task).stem.replace(':', '-')}-{predictions.split}" for predictions in self.predictions
        ]
        return [examples_path(path, name) for name in names]

    def prediction_files(self) -> list[Path]:
        """The files with the predictions; [] if the result is not saved."""
        if self.path is None:
            return []
        return [self.path] if self.path.name.endswith(EXAMPLES) else self.prediction_paths(self.path)

    @cached_property
    def verdict(self) -> tuple[str, ...]:
        """The findings in sentences; () for analyses without a verdict. See :mod:`probekit.analyses.verdict`."""
        return tuple(load(VERDICT)(self))

    def best(self) -> pd.DataFrame:
        """The best layer of each curve, one row per curve.

        The best of several layers looks better than it is. Its interval is therefore the simultaneous one for all
        layers (``joint_low``, ``joint_high``), if the rows have it. ``compare("best")`` tests whether the layers
        differ.
        """
        rows = self.rows[self.rows["layer"].notna() & self.rows["value"].notna()]
        from probekit.metrics import metric

        gold = rows[(rows["target"] == "gold") & rows["draw"].isna()]
        keys = [c for c in CURVE if c in gold]
        found = []
        for _, curve in gold.groupby(keys, sort=False, dropna=False):
            if (curve_metric := metric(str(curve["metric"].iloc[0]))).better:
                found.append(curve.iloc[[curve_metric.best(curve["value"].to_numpy(dtype=float))]])
        import pandas as pd

        best = pd.concat(found, ignore_index=True) if found else gold.iloc[:0]
        joint = [c for c in ("joint_low", "joint_high") if c in best]
        for end, c in zip(("ci_low", "ci_high"), joint, strict=False):
            best[end] = best[c].fillna(best[end])
        return best.drop(columns=joint)

    def summary(self, **options: Any) -> Result:
        """Summarise layer curves in a few numbers with intervals; see :func:`probekit.summary`."""
        return find("summary")(self, **options)

    def compare(self, against: Any = None, **options: Any) -> Result:
        """Paired differences; see :func:`probekit.compare`.

        Parameters
        ----------
        against : str or Result, optional
            "permuted", "best", "layer-0" …, or another result for the same examples.
        **options
            Options of :func:`probekit.compare`.
        """
        compare = find("compare")
        if against is None or isinstance(against, str):
            return compare(self, against=against, **options)
        return compare(self, against, **options)

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Plot the rows on one Axes; raises UsageError for an analysis without such a plot."""
        kinds = set(self.rows["analysis"])
        plots = PLOTS | {one.name: one.plot for one in analyses().values() if one.plot}
        if len(kinds) != 1 or not kinds <= plots.keys():
            raise UsageError(
                f"rows of {', '.join(sorted(map(str, kinds)))} have no single-panel plot; see probekit.plots."
            )
        return load(plots[kinds.pop()])(self.rows, ax=ax, **options)

    def file(self) -> Path | None:
        """The file in which it is saved; None if it is not saved, or if the file has changed since."""
        if self.path is None or not self.card:
            return self.path
        try:
            return self.path if read_card(self.path).get("rows") == self.card.get("rows") else None
        except (DataError, OSError):
            return None

    def __recipe__(self) -> Any:
        """As an argument of another recipe: its file, or its recipe."""
        if (path := self.file()) is not None:
            return str(path)
        return {"object": "probekit.Result"} if self.recipe is None else {"recipe": self.recipe.to_json()}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """As an argument of a recipe: only its type is checked."""
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    @property
    def title(self) -> str:
        """A one-line description."""
        if self.rows.empty:
            return "no rows"
        layered = self.rows[self.rows["site"] != ""]
        head = (layered if len(layered) else self.rows).iloc[0]
        constant = [c for c in ("task", "split") if self.rows[c].nunique() == 1]
        data = " ".join(str(head[c]) for c in constant if head[c]) or f"{self.rows['task'].nunique()} tasks"
        models = self.rows["model"].nunique()
        return f"{head['analysis'] or 'rows'}: {data}, {called(head) if models == 1 else f'{models} models'}"

    def __repr__(self) -> str:
        n_examples = (
            f", {sum(len(predictions.ids) for predictions in self.predictions):,} examples" if self.predictions else ""
        )
        return f"<Result {self.title}; {len(self.rows):,} rows{n_examples}>"

    def _repr_html_(self) -> str:
        grids = "".join(
            to_html(grid) + "".join(f"<p>{escape(note)}</p>" for note in notes) for grid, notes in self._tables()
        )
        return (
            f"<p><b>{escape(self.title)}</b>; {len(self.rows):,} rows.</p>{grids or self._frame()}"
            + "".join(f"<p>{escape(sentence)}</p>" for sentence in self.verdict)
            + (f"<p><code>{escape(str(self.recipe))}</code></p>" if self.recipe and self.recipe.is_command else "")
        )

    def _tables(self) -> list[tuple[Grid, list[str]]]:
        """The tables of its analysis, as the command prints them; none if it is not known how its rows were made."""
        if self.recipe is None or self.rows["analysis"].nunique() != 1:
            return []
        with suppress(Exception):  # rows of an earlier version, or a part of the rows, may lack what a table needs
            options = {**self.recipe.defaults, **self.recipe.arguments}
            return list(load(TABLES)(self.rows["analysis"].iloc[0], self.rows, options))
        return []

    def _frame(self) -> str:
        """Its first rows as a table."""
        shown = self._first_rows()
        table = shown[[c for c in (*SHOWN, *COMPARED) if c in shown and self._is_informative(shown[c])]]
        if shown["layer"].notna().any():
            table = table.assign(layer=layer_labels(shown))
        table = table.assign(**{c: shown[c].round(4) for c in ("metric", "value", "ci_low", "ci_high")})
        return str(table.to_html(index=False, escape=True, max_rows=20, na_rep=""))

    def _first_rows(self) -> pd.DataFrame:
        """Up to ten rows on gold labels; only the first metric if there are more."""
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


def joined(results: Sequence[Result]) -> Result:
    """Several results as one, whose verdict is corrected for the curves of all; the recipe is the first one's.

    Raises
    ------
    UsageError
        If they have predictions for different examples of one task and split.
    """
    import pandas as pd

    rows = make_rows(pd.concat([one.rows for one in results], ignore_index=True))
    predictions = load(BY_SPLIT)(table for one in results for table in one.predictions)
    return Result(rows, tuple(predictions), results[0].recipe, tuple(read for one in results for read in one.reads))


@checked
def read(path: str | Path) -> Result:
    """Read a saved result.

    Parameters
    ----------
    path : path
        The file of rows (``ROWS.parquet``, ``ROWS.csv``), or ``ROWS.examples.parquet``, which gives only predictions.

    Returns
    -------
    Result
        Rows, predictions and recipe, as far as the files contain them.

    Raises
    ------
    DataError
        If the file does not exist or contains neither rows nor predictions.
    """
    if not isinstance(path, str | Path):
        raise UsageError(
            f"rows are named by their path, 'ROWS.parquet', not by a {type(path).__name__}; give each file as an "
            "argument of its own."
        )
    path = Path(path)
    if path.name.endswith(EXAMPLES):
        predictions = load(PREDICTIONS).read(path)
        rows = predictions.fits.assign(metric=predictions.metrics[0], value=float("nan"))
        return Result(make_rows(rows), (predictions,), path=path)
    rows = read_rows(path)
    found = examples_of(path)
    if not found and not path.with_suffix(".parquet").exists():
        found = examples_of(path, path.stem)  # the names that version 0.1 used for a .csv
    card = _card(path)
    with reading(path, "rows with an evidence card"):
        recipe, reads, seconds = _of_card(card)
    all_predictions = tuple(load(PREDICTIONS).read(p) for p in told_by(card, found))
    if not isinstance(card.get("examples"), list):  # only the names say that they belong together
        for predictions, place in zip(all_predictions, found, strict=True):
            _check_fits(rows, predictions.fits, place)
    return Result(rows, all_predictions, recipe, reads, seconds, card, path)


def _card(path: Path) -> dict[str, Any]:
    """The evidence card of rows; {} if it is missing or describes other rows. Raises DataError if it is damaged."""
    card_file = card_path(path)
    if card_file.is_file():
        with reading(card_file, "an evidence card"):
            read_json(card_file)
    return card_of(path)


def _check_fits(rows: pd.DataFrame, fits: pd.DataFrame, place: Path) -> None:
    """Raise DataError if examples belong to fits that are not in the rows."""
    names = ("task", "split", "model", "checkpoint", "representation")
    known = [name for name in names if name in fits and name in rows]
    strange = set(fits[known].fillna("").astype(str).itertuples(index=False, name=None)) - set(
        rows[known].fillna("").astype(str).itertuples(index=False, name=None)
    )
    if strange:
        raise DataError(
            f"holds examples for {', '.join(filter(None, sorted(strange)[0]))}, which the rows next to it do not "
            "contain. Compute the rows again, or move the two to different folders.",
            file=place,
        )


def _of_card(card: Mapping[str, Any]) -> tuple[Recipe | None, tuple[Read, ...], dict[str, float]]:
    """The recipe, inputs and running times in a card."""
    recipe = None
    if recipe_json := card.get("recipe"):
        try:
            recipe = Recipe.from_json(recipe_json)
        except UsageError:
            recipe = None  # from a later version
    reads = tuple(
        Read(r["path"], r["kind"], r["digest"], {k: v for k, v in r.items() if k not in ("path", "kind", "digest")})
        for r in card.get("reads", ())
    )
    return recipe, reads, dict(card.get("seconds", {}))
