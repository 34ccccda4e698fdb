"""``probekit choices``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.analyses.options import ChoiceOptions
from probekit.cli.show import saved
from probekit.cli.terminal import show_table, tables_as
from probekit.grid import Column, Format, Grid

__all__ = ["choices"]


def choices(
    model: str,
    task: str,
    /,
    *,
    data_dir: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    random_weights: int | None = None,
    revision: str | None = None,
    batch_tokens: int = 4096,
    options: Annotated[ChoiceOptions, Parameter(name="*")] = ChoiceOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Count the questions for which the answer that a language model finds likeliest matches a behaviour.

    The model scores each answer of a question ("Yes", "No", or the lettered choices) after a prompt. The rows of each
    matching answer show a model that always gives the same one: read them before the total.

    Examples:

        probekit choices gpt2 persona:openness --data-dir evals --out openness.parquet

        probekit choices gpt2 human-generated:survival-instinct --data-dir evals

        probekit choices gpt2 persona:openness --data-dir evals --random-weights 0

    Parameters
    ----------
    model
        A language model with its head (hub id or folder).
    task
        persona:TRAIT (Yes or No) or human-generated:BEHAVIOUR (lettered choices), from the model-written evaluations
        of Perez et al. (2022).
    data_dir
        Folder with their files (TRAIT.jsonl, BEHAVIOUR.jsonl), directly or in persona/ and human_generated/.
    device
        auto, cpu, cuda, cuda:N or mps.
    dtype
        Precision of the model's weights: float32, float16 or bfloat16.
    random_weights
        Control: draw the weights at random with this seed instead of the trained ones.
    revision
        Branch, tag or commit of the model on the hub.
    batch_tokens
        Pieces that the model reads at once.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) and the predictions next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.choices(
            model, task, data_dir=data_dir, device=device, dtype=dtype, random_weights=random_weights,
            revision=revision, batch_tokens=batch_tokens, options=options, out=out, progress=progress,
        )  # fmt: skip
    columns = [Column("questions", key=True), Column("n"), Column("matching answer likeliest")]
    columns += [Column(f"{100 * options.level:g} % interval", dim=True), Column("chance", dim=True), Column("ties")]
    lines = []
    for row in result.rows.to_dict("records"):
        line = [f"matching answer {row['of']}" if row["of"] else "all", f"{row['n']:,}", f"{row['value']:.3f}"]
        line += [f"{row['ci_low']:.3f} – {row['ci_high']:.3f}", f"{row['chance']:.3f}", str(row["ties"])]
        lines.append(line)
    with tables_as(format_):
        show_table(Grid(columns, lines, f"{task}, {result.rows['model'].iloc[0]}"))
        saved(result)
