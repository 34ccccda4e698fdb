"""``probekit cache-activations``, ``inspect`` and ``verify``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from probekit.files import in_words

if TYPE_CHECKING:
    from probekit.runtime import Progress

__all__ = ["cache_command", "inspect_command", "verify_command"]

CacheFile = Annotated[Path, typer.Argument(metavar="CACHE.h5", help="An activation cache.")]


def cache_command(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Hub id, or a local folder with config.json and safetensors; with a pattern (RUN/step-*) all of them; "
            "elmo:OPTIONS,WEIGHTS or skip-thoughts:FOLDER for published files.",
        ),
    ],
    task: Annotated[str, typer.Option("--task", help="Name of a task (see *probekit tasks*), or a TOML file.")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL…]", help="Further models, cached one after another.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Split of the task.")] = "train",
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Folder with the task's files; the hub without it.")
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            "--pooling",
            help="One or several of mean, mean-all, first, last, max, with commas; or none. Without it mean (of "
            "Skip-thoughts last).",
        ),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Keep the vector of every token as well.")] = False,
    token_level: Annotated[
        str, typer.Option("--token-level", help="With --tokens: piece, word-first (first piece) or word-mean.")
    ] = "piece",
    pairs: Annotated[
        str,
        typer.Option(
            "--pairs",
            help="Sentence pairs: joint (one sequence), separate (two), or auto: joint where the model can.",
        ),
    ] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", help="The model computes in float32, float16 or bfloat16.")
    ] = "float32",
    store: Annotated[str | None, typer.Option("--store", help="Numbers in the file; as --dtype without it.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first N examples.")] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            help="The file, or a folder for files of the default name, TASK.SPLIT.MODEL.DIGEST.h5; data_cache/ "
            "without it.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a cache of other activations.")] = False,
    random_weights: Annotated[
        int | None,
        typer.Option("--random-weights", metavar="SEED", help="Control: the same architecture, re-initialised."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes that share the work.")] = 1,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit of a hub model.")] = None,
    model_name: Annotated[str | None, typer.Option("--model-name", help="Name in tables and file names.")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", help="Most pieces of a sequence.")] = None,
    stateful: Annotated[
        bool,
        typer.Option("--stateful", help="ELMo: carry the LSTMs' state from batch to batch, as the original does."),
    ] = False,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Examples in a batch with --stateful; 64 without it.")
    ] = None,
    on_truncate: Annotated[
        str, typer.Option("--on-truncate", help="Texts that are too long: keep (cut, count) or error.")
    ] = "keep",
    batch_tokens: Annotated[int | None, typer.Option("--batch-tokens", help="Pieces in a batch.")] = None,
    allow_nonfinite: Annotated[bool, typer.Option("--allow-nonfinite", help="Keep NaN and infinity.")] = False,
    compress: Annotated[bool, typer.Option("--compress", help="Pack the vectors with zstd (slower to read).")] = False,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
) -> None:
    """Run a model over a task and store every layer's activations.

    The same command again opens a finished cache at once, and takes an interrupted one up where it stopped. Checkpoints
    of training are cached all at once, in the order of their steps; their rows tell the run and the step.

    Examples:

        probekit cache-activations --model bert-base-uncased --task sst2

        probekit cache-activations --model ./bert-of-mine --task mytask.toml --split dev --pooling mean,first

        probekit cache-activations --model gpt2 --task cola --data-dir ~/glue/CoLA --tokens --dtype bfloat16

        probekit cache-activations --model bert-base-uncased --task sst2 --random-weights 0

        probekit cache-activations --model RUN/step-* --task cola --split dev

        probekit cache-activations --model elmo:options.json,weights.hdf5 --task cola
    """
    from probekit.activations import cache_activations
    from probekit.cli.patterns import expand, natural
    from probekit.errors import UsageError
    from probekit.tasks import load_task

    if token_level != "piece" and not tokens:
        raise UsageError(f"--token-level {token_level} is for token vectors; add --tokens.")
    models = sorted({found for word in (model, *(more or ())) for found in expand(word)}, key=natural)
    several = len(models) > 1
    if several and out is not None and not (out.endswith("/") or Path(out).is_dir()):
        raise UsageError(
            f"--out {out} is one file, and {len(models)} models are to be cached; give a folder ({out}/), or leave it "
            "out."
        )
    if batch_size is not None and not stateful:
        raise UsageError(
            "--batch-size is for --stateful, whose numbers depend on it; else batches are told by --batch-tokens."
        )
    read = load_task(task, data_dir=data_dir)
    for i, one in enumerate(models, 1):
        with _watching(f"{i}/{len(models)} " if several else "") as (watch, ran):
            cache = cache_activations(
                one, read, split, pooling=[] if pooling == "none" else pooling,
                stateful=(batch_size or 64) if stateful else 0,
                tokens=token_level if tokens else None, pairs=pairs, dtype=dtype, store=store, limit=limit, out=out,
                overwrite=overwrite, random_weights=random_weights, workers=workers, device=device, revision=revision,
                model_name=model_name, max_length=max_length, on_truncate=on_truncate, batch_tokens=batch_tokens,
                allow_nonfinite=allow_nonfinite, compress=compress, compile=compile, wait=_waiting, progress=watch,
            )  # fmt: skip
        with cache:
            (_line if several else _summary)(cache, ran)


def _waiting() -> None:
    typer.echo("probekit: another process is writing this cache; waiting for it.", err=True)


@contextmanager
def _watching(which: str) -> Iterator[tuple[Progress, dict[str, float]]]:
    """A progress bar, and what it saw: seconds in all and in the model ("model", where it ran), and its rates."""
    from probekit.cli.progress import bar

    began, ran = monotonic(), {"seconds": 0.0}
    with bar() as progress:

        def watch(stage: str, done: int, total: int, /, **rates: float) -> None:
            if stage == "model":
                ran.setdefault("began", monotonic())
                ran.update(rates, model=max(monotonic() - ran["began"], 1e-9))
            progress(which + stage, done, total, **rates)

        yield watch, ran
    ran["seconds"] = monotonic() - began


def _line(cache: Any, ran: dict[str, float]) -> None:
    """One of several caches."""
    counts, seconds = cache.spec["counts"], ran["seconds"]
    cut = f", {counts['truncated']:,} cut off" if counts["truncated"] else ""
    how = f"{seconds:.1f} s" if "model" in ran else "it was there already"
    typer.echo(
        f"{cache.path}: {len(cache):,} examples{cut}, {len(cache.layers)} layers of width {_widths(cache)}; {how}"
    )


def _summary(cache: Any, ran: dict[str, float]) -> None:
    counts, size = cache.spec["counts"], cache.path.stat().st_size
    typer.echo(str(cache.path))
    typer.echo(
        f"{len(cache):,} examples, {counts['unique']:,} distinct texts, {counts['pieces']:,} pieces; "
        f"{len(cache.layers)} layers of width {_widths(cache)}; {in_words(size)}"
    )
    notes = [
        f"{counts['truncated']:,} cut off at {cache.spec['reads_at_most']} pieces" if counts["truncated"] else "",
        f"{counts['empty']:,} without content (zeros)" if counts["empty"] else "",
        f"{counts['sequences'] - counts['unique']:,} repeated texts run once"
        if counts["sequences"] > counts["unique"]
        else "",
    ]
    if any(notes):
        typer.echo("; ".join(filter(None, notes)))
    if "model" not in ran:
        typer.echo("it was there already")
        return
    model = ran["model"]
    typer.echo(
        f"{ran['seconds']:.1f} s, of which {model:.1f} s in the model: {ran['examples']:,.0f} texts, "
        f"{ran['examples'] / model:,.0f} a second; {ran['tokens']:,.0f} pieces, {ran['tokens'] / model:,.0f} a second"
    )


def inspect_command(
    path: CacheFile,
    json: Annotated[bool, typer.Option("--json", help="The whole description as JSON.")] = False,
) -> None:
    """Show what a cache holds.

    Example: `probekit inspect data_cache/sst2.train.bert-base-uncased.1a2b3c4d.h5`
    """
    import json as js

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from probekit.activations import ActivationCache

    with ActivationCache(path) as cache:
        s = cache.spec
        if json:
            typer.echo(
                js.dumps(s | {"created": cache.attributes["created"]}, indent=2, ensure_ascii=False, sort_keys=True)
            )
            return
        counts = s["counts"]
        rows = {
            "task": f"{s['task']} {s['split']} ({s['kind']}, metrics {', '.join(s['metrics'])})",
            "model": f"{s['model']}"
            + (f", random weights {s['random_weights']}" if s.get("random_weights") is not None else "")
            + (f", {s['checkpoint']}, step {s['step']:,}" if "step" in s else ""),
            "examples": f"{len(cache):,} ({counts['unique']:,} distinct texts, {counts['pieces']:,} pieces, "
            f"{counts['truncated']:,} cut off, {counts['empty']:,} without content)",
            "layers": ", ".join(cache.layers),
            "width": _widths(cache),
            "pooling": ", ".join(cache.poolings) or "none",
            "tokens": f"{s['tokens']}" if s["tokens"] else "none",
            "pairs": s["pairs"] or "single sentences",
            "computed in": f"{s.get('dtype')} on {s.get('device')} ({s['environment'].get('path')})",
            "stored as": s["store"],
            **({"state": f"carried on, batches of {s['stateful']} examples"} if "stateful" in s else {}),
            "labels": _labels(cache),
            "size": in_words(cache.path.stat().st_size),
            "spec_id": cache.spec_id,
            "created": f"{cache.attributes['created']} by probekit {cache.attributes['probekit']}",
            "certificate": s["certificate"]["verdict"],
        }
    table = Table(show_header=False, box=None)
    for key, value in rows.items():
        table.add_row(f"[bold]{key}[/]", escape(str(value)))
    Console().print(table)


def _widths(cache: Any) -> str:
    """The width of the layers, or the widths."""
    return ", ".join(map(str, cache.spec.get("widths", [cache.width])))


def _labels(cache: Any) -> str:
    import numpy as np

    if cache.spec["kind"] == "regression":
        y = cache.labels[~np.isnan(cache.labels)]
        return f"{len(y):,} numbers, {y.min():g} to {y.max():g}, mean {y.mean():.3f}" if len(y) else "none"
    y = cache.word_labels if cache.spec["kind"] == "sequence-labelling" and cache.spec["tokens"] else cache.labels
    names = cache.spec["label_names"]
    counts = [
        f"{names[i] if 0 <= i < len(names) else i}: {c:,}"
        for i, c in zip(*np.unique(y[y >= 0], return_counts=True), strict=True)
    ]
    return ", ".join(counts[:12]) + (", …" if len(counts) > 12 else "") or "none"


def verify_command(path: CacheFile) -> None:
    """Read a cache from end to end and check that no byte has changed since it was written. Exit status 1 if one has.

    Example: `probekit verify data_cache/sst2.train.bert-base-uncased.1a2b3c4d.h5`
    """
    from probekit.activations import verify
    from probekit.cli.progress import bar
    from probekit.errors import CacheCorrupt, CacheIncomplete, CacheMismatch

    try:
        with bar() as progress:
            verdict = verify(path, progress=progress)
    except (CacheCorrupt, CacheIncomplete, CacheMismatch) as error:
        typer.echo(f"{error}", err=True)
        raise typer.Exit(1) from error
    for problem in verdict.problems[:20]:
        typer.echo(f"{path}: {problem}", err=True)
    if not verdict.ok:
        typer.echo(f"{path}: {len(verdict.problems)} problem(s); make the cache again with --overwrite.", err=True)
        raise typer.Exit(1)
    typer.echo(f"{path}: whole; {verdict.digests:,} digests over {in_words(verdict.nbytes)} agree")
