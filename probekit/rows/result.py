"""The result of an analysis: its rows, the predictions for each example, and the recipe to reproduce them.

::

    result = probekit.probe("cola.train.h5", "cola.dev.h5")
    result.compare("permuted")
    result.plot()
    result.save("cola.parquet")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from probekit.grid import WRITERS, Format, Grid, to_html
from probekit.recipe import Read, Recipe
from probekit.rows.card import card_path, make_card, read_card, reads_of
from probekit.rows.examples import EXAMPLES, examples_of, examples_path, told_by
from probekit.rows.files import card_of, check_out, read_rows, saved_examples, write_rows
from probekit.rows.model_names import results_apart
from probekit.rows.schema import make_rows
from probekit.rows.tidy import as_grid, best_rows, main_rows, models, second, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PREDICTIONS, BY_SPLIT = "probekit.statistics.predictions:Predictions", "probekit.statistics.predictions:by_split"
CHOSEN = "probekit.monitors.folder:chosen"
VERDICT, TABLES = "probekit.analyses.verdict:verdict", "probekit.view:tables"
"""This module does not import analyses or statistics; names are looked up late."""
FIGURES = {"train": "mix", "transfer": "transfer"}
"""The kind of figure of rows that are of no analysis."""
MOST, FIRST = 12, 10
"""Tables that a notebook shows, and rows of an analysis without a table."""
CURVE = (
    *("task", "split", "model", "checkpoint", "step", "regime", "head", "variant", "representation", "estimator"),
    *("analysis", "trained_on", "target", "metric", "seed"),
)


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
    notes : tuple of str
        What it says of its data: groups, texts left out …; each is shown once a session.
    probes : tuple of Probe
        The fitted probes of ``probekit.probe``; () for what was read from a file.
    """

    rows: pd.DataFrame
    predictions: tuple[Any, ...] = ()
    recipe: Recipe | None = None
    reads: tuple[Read, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    notes: tuple[str, ...] = ()
    probes: tuple[Any, ...] = ()

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
        card |= {"verdict": list(self.verdict), **({"notes": list(self.notes)} if self.notes else {})}
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

    def table(self) -> pd.DataFrame:
        """The measured values as a small table: the value beside the layer; ``rows`` has all columns and all controls.

        Returns
        -------
        DataFrame
            A row for each layer and metric on gold labels: layer, value, interval and corrected p, the metric, the
            columns that tell rows apart, the model and the task.
        """
        return tidy(main_rows(self.rows))

    def best(self) -> pd.DataFrame:
        """The best layer of each curve, one row per curve, with the columns of :meth:`table`.

        The best of several layers looks better than it is. Its interval is therefore the simultaneous one for all
        layers, in the columns ``joint_low`` and ``joint_high``, if the rows have it; ``ci_low`` and ``ci_high`` are the
        interval of a single layer. ``compare("best")`` tests whether the layers differ.
        """
        return tidy(best_rows(self.rows, CURVE), joint=True)

    def probe(self, layer: int | str | None = None) -> Any:
        """The fitted :class:`probekit.Probe` of a layer, by default of the best one; ``save`` keeps it.

        Raises
        ------
        UsageError
            If there are none: a result of another analysis, or one that was read from a file.
        """
        if not self.probes:
            raise UsageError("this result has no fitted probes; a new one of probekit.probe has them, a saved one not.")
        return load(CHOSEN)(self.probes, layer)

    def grids(self) -> Iterator[tuple[Grid | None, list[str]]]:
        """The tables that its command prints, each with the lines below it; without a recipe those of its analyses."""
        function, options = "", {"level": None}
        if self.recipe is not None:
            function, options = self.recipe.function, {**self.recipe.defaults, **self.recipe.arguments}
        parts = {str(name): rows for name, rows in self.rows.groupby("analysis", sort=False)}
        if function not in parts and function in analyses():  # one that makes rows of others
            parts = {function: self.rows}
        for name, rows in parts.items():
            is_its = name == function or function not in analyses()
            yield from load(TABLES)(name, rows, options if is_its else {"level": None})

    def to_markdown(self) -> str:
        """Its tables in Markdown, as its command prints them with ``--format markdown``."""
        return self._written(Format.MARKDOWN)

    def to_latex(self) -> str:
        """Its tables in LaTeX with the rules of booktabs, as its command prints them with ``--format latex``."""
        return self._written(Format.LATEX)

    def _written(self, form: Format) -> str:
        return "\n".join(WRITERS[form](grid) for grid, _ in self._tables(most=None) if grid is not None)

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

    def plot(self, kind: str | None = None, /, **options: Any) -> Figure:
        """Draw the figure that ``probekit.plot(KIND, result)`` draws.

        Parameters
        ----------
        kind : str, optional
            A kind of figure, such as "confusion"; by default the kind that suits its analysis.
        **options
            Options of :func:`probekit.plot`, such as ``metric``, ``width`` and ``out``.

        Returns
        -------
        Figure
            Not shown; saved if ``out`` is given. For one Axes of your own see :mod:`probekit.plots`.

        Raises
        ------
        UsageError
            Without a kind, for rows of several analyses, and of one without a figure.
        """
        if kind is not None:
            return find("plot")(kind, self, **options)
        names = sorted(map(str, self.rows["analysis"].unique()))
        figures = FIGURES | {one.name: one.kind for one in analyses().values()}
        kinds = {figures.get(name, "") for name in names}
        if len(kinds) != 1 or not (own := kinds.pop()):
            raise UsageError(f"rows of {', '.join(names)} have no figure of their own; probekit.plot draws a kind.")
        return find("plot")(own, self, **options)

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
        rows = layered if len(layered) else self.rows
        others = models(second(rows)) if "model_b" in rows else []
        head, names = rows.iloc[0], list(dict.fromkeys([*models(rows), *others]))
        constant = [c for c in ("task", "split") if self.rows[c].nunique() == 1]
        data = " ".join(str(head[c]) for c in constant if head[c]) or f"{self.rows['task'].nunique()} tasks"
        which = " and ".join(names) if len(names) < 3 else f"{len(names)} models"
        vectors = ", ".join(filter(None, dict.fromkeys(rows["representation"])))
        return f"{head['analysis'] or 'rows'}: {', '.join(filter(None, (data, which, vectors)))}"

    def __repr__(self) -> str:
        n_examples = (
            f", {sum(len(predictions.ids) for predictions in self.predictions):,} examples" if self.predictions else ""
        )
        return f"<Result {self.title}; {len(self.rows):,} rows{n_examples}>"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self.title)}</b>; {len(self.rows):,} rows.</p>"]
        for grid, notes in self._tables(most=MOST):
            parts.append(to_html(grid) if grid is not None else "")
            parts += [f"<p>{escape(note)}</p>" for note in notes]
        parts += [f"<p>{escape(sentence)}</p>" for sentence in self.verdict]
        parts += [f"<p>Note: {escape(note)}</p>" for note in self.notes]
        if self.recipe and self.recipe.is_command:
            parts.append(f"<p><code>{escape(str(self.recipe))}</code></p>")
        return "".join(parts)

    def _tables(self, most: int | None) -> list[tuple[Grid | None, list[str]]]:
        """Its tables, the first ``most``; without a view of its analysis the first rows of :meth:`table`."""
        found: list[tuple[Grid | None, list[str]]] = []
        with suppress(Exception):  # rows of an earlier version, or a part of the rows, may lack what a table needs
            found = list(self.grids())
        if not found:
            table = self.table()
            return [as_grid(table if most is None else table.head(FIRST), len(table), len(self.rows))]
        if most is not None and len(found) > most:
            more = f"{most} of {len(found)} tables; result.to_markdown() has all, result.table() their numbers."
            return [*found[:most], (None, [more])]
        return found


def joined(results: Sequence[Result]) -> Result:
    """Several results as one, whose verdict is corrected for the curves of all; the recipe is the first one's.

    Models of one name that have other weights are told apart.

    Raises
    ------
    UsageError
        If they have predictions for different examples of one task and split.
    """
    import pandas as pd

    results = results_apart(results)
    rows = make_rows(pd.concat([one.rows for one in results], ignore_index=True))
    predictions = load(BY_SPLIT)(table for one in results for table in one.predictions)
    reads, notes = ([x for one in results for x in of(one)] for of in (lambda one: one.reads, lambda one: one.notes))
    return Result(rows, tuple(predictions), results[0].recipe, tuple(reads), notes=tuple(dict.fromkeys(notes)))


@checked
def read(path: str | Path) -> Result:
    """Read a saved result: its rows, predictions and recipe.

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
    notes = tuple(map(str, listed)) if isinstance(listed := card.get("notes"), list) else ()
    return Result(rows, all_predictions, recipe, reads, seconds, card, path, notes)


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
    return recipe, reads_of(card), dict(card.get("seconds", {}))
