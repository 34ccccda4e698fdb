"""``probekit guidelines``: which regime to prefer, from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import GuidelinesOptions
from probekit.cli.show import saved, say
from probekit.cli.terminal import show_paragraph, show_table, tables_as
from probekit.display import shown_label
from probekit.grid import Column, Format, Grid
from probekit.tables.adaptation import adaptation_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["guidelines"]


def guidelines(
    run: Path,
    /,
    *runs: Path,
    options: Annotated[GuidelinesOptions, Parameter(name="*")] = GuidelinesOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Recommend a way to adapt for each task and model, with the confidence of the recommendation.

    The two regimes are compared on the same examples, and across training seeds if there are several. "either" means
    that the difference lies within the margin, "cannot tell" that the runs do not settle it. p is corrected for the
    number of tasks (Holm).

    With several settings (runs that differ in more than the seed), each is compared with a reference, full fine-tuning
    by default, and the cheapest one that is shown not to be worse by the margin is recommended.

    Examples:

        probekit guidelines runs/mrpc runs/mrpc-esim

        probekit guidelines runs/* --margin 0.02 --out guidelines.parquet

        probekit guidelines runs/cola-full runs/cola-lora runs/cola-bitfit --cost cpu-seconds

    Parameters
    ----------
    run
        A finished run.
    runs
        Further runs; both regimes, or several settings, are needed. A folder of several seeds counts as its runs.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.analyses.guidelines import overview

    result = probekit.guidelines(run, *runs, options=options, out=out)
    with tables_as(format_):
        if "reference" in result.rows:
            _show_settings(result.rows)
        else:
            _show(result.rows)
        for sentence in overview(result.rows):
            say(sentence)
        saved(result)


def _show_settings(rows: pd.DataFrame) -> None:
    """A table for each task and model, and under it the caveats."""
    *grids, legend = adaptation_table(rows)
    for part in grids:
        show_paragraph(part) if isinstance(part, str) else show_table(part)
    say(str(legend).rstrip())
    caveats = rows[rows["caveat"].notna() & (rows["caveat"] != "")]
    for caveat, of in caveats.groupby("caveat", sort=False):
        say(f"{', '.join(dict.fromkeys(of['task']))}: {caveat}")
    say("")


def _show(rows: pd.DataFrame) -> None:
    """A table of all tasks, and under it the caveats, each with its tasks."""
    columns = [
        Column("task", align="left", key=True),
        Column("model", align="left", key=True, label=True),
        Column("prefer", align="left"),
        Column("confidence", align="left"),
        *map(Column, ("difference", "95 % interval", "p")),
    ]
    rows = rows.assign(model=rows["model"].map(shown_label))
    several = rows["model"].nunique() > 1
    names = [f"{row['task']}, {row['model']}" if several else row["task"] for row in rows.to_dict("records")]
    lines = []
    for row in rows.to_dict("records"):
        value, low, high, p = (row[key] for key in ("value", "ci_low", "ci_high", "p_adjusted"))
        numbers = [f"{value:+.3f}", f"{low:+.3f} – {high:+.3f}", f"{p:.3f}"] if p == p else [""] * 3  # NaN
        lines.append([row["task"], row["model"], row["prefer"], row["confidence"], *numbers])
    show_table(Grid(columns, lines))
    for caveat in filter(None, rows["caveat"].unique()):
        tasks = [name for name, text in zip(names, rows["caveat"], strict=True) if text == caveat]
        say(f"{', '.join(tasks)}: {caveat}")
    say("")
