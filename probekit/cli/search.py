"""``probekit search``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.adaptation.options import SearchOptions
from probekit.cli.show import console, say

if TYPE_CHECKING:
    from probekit.adaptation.search.search import Search

__all__ = ["search"]


def search(
    space: str,
    /,
    *,
    options: Annotated[SearchOptions, Parameter(name="*")] = SearchOptions(),
    out: Path | None = None,
) -> None:
    """Search hyper-parameters on dev, then train the best with several seeds and evaluate it on test.

    A file names task and model, and below [space] options of training: a list of choices, a range, or one value.

        task = "mrpc"
        model = "bert-base-uncased"
        trials = 20
        [space]
        learning_rate = { low = 1e-5, high = 1e-4, log = true }
        batch_size = [16, 32]
        schedule = "slanted-triangular"

    The same command again goes on. The folder holds trials.parquet, best.toml, rows.parquet and the runs of the best.

    Examples:

        probekit search paper/fine-tune --task mrpc --model bert-base-uncased --out searches/mrpc --workers 2

        probekit search mine.toml --out searches/mine

    Parameters
    ----------
    space
        SPACE.toml: what to search, or one that comes with probekit: paper/fine-tune, paper/fine-tune-layerwise,
        paper/feature-extraction.
    out
        Folder of the search; searches/SPACE without it.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        found = probekit.search(space, options=options, out=out, progress=progress)
    _show(found)


def _show(found: Search) -> None:
    """The best options, and what they reach: mean and standard deviation over the seeds."""
    from rich.table import Table

    from probekit.adaptation.runs.constant import constants_of

    pruned = int((found.trials["state"] == "pruned").sum())
    say(f"{len(found.trials)} trials, {pruned} of them pruned; the best on dev:")
    table = Table()
    for column in ("option", "value"):
        table.add_column(column)
    for name, value in sorted(found.options.items()):
        table.add_row(name, f"{value:.3g}" if isinstance(value, float) else str(value))
    console().print(table)
    for _, row in found.rows[found.rows["seed"].isna()].iterrows():
        spread = "" if row["runs"] == 1 else f" ± {row['sd']:.4f} (standard deviation)"
        say(f"{row['task']} {row['split']} {row['metric']}: {row['value']:.4f}{spread}, {row['runs']} seeds")
    for one in constants_of(found.rows).to_dict("records"):
        told = f"{one['value']:.4f}, the constant answer ({one['estimator']})"
        say(f"{one['task']} {one['split']} {one['metric']}: {told}")
    assert found.path is not None
    say(f"{found.path / 'rows.parquet'}  {found.path / 'best.toml'}")
