"""``probekit search``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.adaptation.options import SearchOptions
from probekit.cli.show import say
from probekit.cli.terminal import show_table
from probekit.grid import Column, Grid

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
    """Search hyperparameters on dev, then train the best with several seeds and evaluate it on test.

    A TOML file names task and model and, below [space], options of probekit train (there with hyphens, here with
    underscores). Each option has a list of choices, a range of numbers, or one value for all trials:

        task = "mrpc"
        model = "bert-base-uncased"
        regime = "fine-tune"            # or "feature-extraction"
        data_dir = "data/mrpc"          # without it, the Hugging Face hub
        trials = 20                     # settings to try
        seeds = 5                       # trainings of the best setting
        prune = true                    # stop trials that are worse than most

        [space]
        learning_rate = { low = 1e-5, high = 1e-4, log = true }
        epochs = { low = 2, high = 5 }
        batch_size = [16, 32]
        dropout = [0.0, 0.1, 0.2]
        schedule = ["linear", "slanted-triangular"]
        weight_decay = 0.01

    The same command again continues an interrupted search. The folder holds trials.parquet, best.toml, rows.parquet and
    the runs of the best setting.

    Examples:

        probekit search paper/fine-tune --task mrpc --model bert-base-uncased --out searches/mrpc --workers 2

        probekit search mine.toml --out searches/mine

    Parameters
    ----------
    space
        SPACE.toml, or a space that comes with probekit: paper/fine-tune, paper/fine-tune-layerwise,
        paper/feature-extraction.
    out
        Folder of the search; searches/SPACE by default.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        found = probekit.search(space, options=options, out=out, progress=progress)
    _show(found)


def _show(found: Search) -> None:
    """The best options and their metrics: mean and standard deviation over the seeds."""
    from probekit.adaptation.runs.constant import constants_of
    from probekit.adaptation.runs.seeds import described
    from probekit.adaptation.search.expected import expected_sentence

    pruned = int((found.trials["state"] == "pruned").sum())
    say(f"{len(found.trials)} trials, {pruned} of them pruned; the best on dev:")
    options = sorted(found.options.items())
    lines = [[name, f"{value:.3g}" if isinstance(value, float) else str(value)] for name, value in options]
    show_table(Grid([Column("option", align="left", key=True), Column("value", align="left")], lines))
    for sentence in described(found.rows):
        say(f"{found.rows['task'].iloc[0]} {sentence}")
    say(expected_sentence(found.rows))
    for one in constants_of(found.rows).to_dict("records"):
        constant = f"{one['value']:.4f}, constant baseline ({one['estimator']})"
        say(f"{one['task']} {one['split']} {one['metric']}: {constant}")
    assert found.path is not None
    say(f"{found.path / 'rows.parquet'}  {found.path / 'best.toml'}")
