"""``probekit search``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from probekit.adaptation.search.search import Search

__all__ = ["search_command"]


def search_command(
    space: Annotated[
        str,
        typer.Argument(
            metavar="SPACE.toml",
            help="What to search, or one that comes with probekit: paper/fine-tune, paper/fine-tune-layerwise, "
            "paper/feature-extraction.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the search; searches/SPACE without it.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="Instead of the file's.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Instead of the file's.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder of the task's files.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Learn from the first examples only.")] = None,
    trials: Annotated[int | None, typer.Option("--trials", help="How many settings to try.")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", help="How often the best is trained again.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the search, and the first of the best.")] = None,
    test: Annotated[
        str | None, typer.Option("--test", help='Split that the best is evaluated on, once a seed; "" for none.')
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes that train at the same time.")] = 1,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
) -> None:
    """Search hyper-parameters on dev, then train the best with several seeds and evaluate it on test.

        probekit search paper/fine-tune --task mrpc --model bert-base-uncased --out searches/mrpc --workers 2

        probekit search mine.toml --out searches/mine

    A file names task and model, and below [space] options of training: a list of choices, a range, or one value.

        task = "mrpc"
        model = "bert-base-uncased"
        trials = 20
        [space]
        learning_rate = { low = 1e-5, high = 1e-4, log = true }
        batch_size = [16, 32]
        schedule = "slanted-triangular"

    The same command again goes on. The folder holds trials.parquet, best.toml, rows.parquet and the runs of the best.
    """
    from probekit.adaptation.search.search import search
    from probekit.adaptation.search.space import read_space
    from probekit.cli.progress import bar

    given = {
        "task": task, "model": model, "data_dir": None if data_dir is None else str(data_dir), "limit": limit,
        "trials": trials, "seeds": seeds, "seed": seed, "test": test,
    }  # fmt: skip
    asked = read_space(space, given)
    with bar() as progress:
        found = search(
            asked, out or Path("searches") / Path(space).stem, workers=workers, device=device, progress=progress
        )
    _show(found)


def _show(found: Search) -> None:
    """The best options, and what they reach: mean and standard deviation over the seeds."""
    from rich.console import Console
    from rich.table import Table

    pruned = int((found.trials["state"] == "pruned").sum())
    typer.echo(f"{len(found.trials)} trials, {pruned} of them pruned; the best on dev:")
    table = Table()
    for column in ("option", "value"):
        table.add_column(column)
    for name, value in sorted(found.best.items()):
        table.add_row(name, f"{value:.3g}" if isinstance(value, float) else str(value))
    Console().print(table)
    for _, row in found.rows[found.rows["seed"].isna()].iterrows():
        spread = "" if row["runs"] == 1 else f" ± {row['sd']:.4f} (standard deviation)"
        typer.echo(f"{row['task']} {row['split']} {row['metric']}: {row['value']:.4f}{spread}, {row['runs']} seeds")
    typer.echo(f"{found.path / 'rows.parquet'}  {found.path / 'best.toml'}")
