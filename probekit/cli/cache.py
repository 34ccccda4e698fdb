"""``probekit cache-activations``, ``inspect`` and ``verify``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from probekit.activations.options import CacheOptions
from probekit.cli.show import say, warn
from probekit.cli.terminal import show_facts
from probekit.errors import UsageError
from probekit.files import in_words

if TYPE_CHECKING:
    from probekit.runtime import Progress

__all__ = ["cache_activations", "inspect", "verify"]


def cache_activations(
    *more: str,
    model: str,
    task: str,
    split: str = "train",
    options: Annotated[CacheOptions, Parameter(name="*")] = CacheOptions(),
    out: str | None = None,
    overwrite: bool = False,
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

    Parameters
    ----------
    more
        Further models, cached one after another.
    model
        Hub id, or a local folder with config.json and safetensors; minilm is the model of the extra demo; random:MODEL
        has random weights; with a pattern (RUN/step-*) all of them;
        elmo:OPTIONS,WEIGHTS or skip-thoughts:FOLDER for published files.
    task
        Name of a task (see *probekit tasks*), or a TOML file.
    split
        Split of the task.
    out
        The file, or a folder for files of the default name, TASK.SPLIT.MODEL.DIGEST.h5; data_cache/ without it.
    overwrite
        Replace a cache of other activations.
    """
    import probekit
    from probekit.cli.patterns import expand, natural

    models = sorted({found for word in (model, *more) for found in expand(word)}, key=natural)
    several = len(models) > 1
    if several and out is not None and not (out.endswith("/") or Path(out).is_dir()):
        raise UsageError(
            f"--out {out} is one file, and {len(models)} models are to be cached; give a folder ({out}/), or leave it "
            "out."
        )
    for i, one in enumerate(models, 1):
        with _watching(f"{i}/{len(models)} " if several else "") as (watch, ran):
            cache = probekit.cache_activations(
                one, task, split, options=options, out=out, overwrite=overwrite, wait=_waiting, progress=watch
            )
        with cache:
            (_line if several else _summary)(cache, ran)


def _waiting() -> None:
    warn("probekit: another process is writing this cache; waiting for it.")


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
    say(f"{cache.path}: {len(cache):,} examples{cut}, {_layers(cache)}; {how}")


def _summary(cache: Any, ran: dict[str, float]) -> None:
    counts, size = cache.spec["counts"], cache.path.stat().st_size
    say(cache.path)
    say(
        f"{len(cache):,} examples, {counts['unique']:,} distinct texts, {counts['pieces']:,} pieces; "
        f"{_layers(cache)}; {in_words(size)}"
    )
    repeated = counts["sequences"] - counts["unique"]
    notes = [
        f"{counts['truncated']:,} cut off at {cache.spec['reads_at_most']} pieces" if counts["truncated"] else "",
        f"{counts['empty']:,} without content (zeros)" if counts["empty"] else "",
        f"{repeated:,} repeated texts run once" if repeated else "",
    ]
    if any(notes):
        say("; ".join(filter(None, notes)))
    if "model" not in ran:
        say("it was there already")
        return
    model = ran["model"]
    say(
        f"{ran['seconds']:.1f} s, of which {model:.1f} s in the model: {ran['examples']:,.0f} texts, "
        f"{ran['examples'] / model:,.0f} a second; {ran['tokens']:,.0f} pieces, {ran['tokens'] / model:,.0f} a second"
    )


def _layers(cache: Any) -> str:
    """How many layers, and how wide."""
    widths = dict.fromkeys(cache.widths) if len(set(cache.widths)) == 1 else cache.widths
    return f"{len(cache.layers)} layers of width {', '.join(map(str, widths))}"


def inspect(cache: Path, /, *, json: bool = False) -> None:
    """Show what a cache holds.

    Example: `probekit inspect data_cache/sst2.train.bert-base-uncased.1a2b3c4d.h5`

    Parameters
    ----------
    cache
        An activation cache, CACHE.h5.
    json
        The whole description as JSON.
    """
    from probekit.activations import ActivationCache
    from probekit.activations.description import describe, to_json

    with ActivationCache(cache) as opened:
        if json:
            say(to_json(opened))
            return
        show_facts(describe(opened))


def verify(cache: Path, /) -> int:
    """Read a cache from end to end and check that no byte has changed since it was written. Exit status 1 if one has.

    Example: `probekit verify data_cache/sst2.train.bert-base-uncased.1a2b3c4d.h5`

    Parameters
    ----------
    cache
        An activation cache, CACHE.h5.
    """
    import probekit
    from probekit.cli.progress import bar
    from probekit.errors import CacheCorrupt, CacheIncomplete, CacheMismatch

    try:
        with bar() as progress:
            verdict = probekit.verify(cache, progress=progress)
    except (CacheCorrupt, CacheIncomplete, CacheMismatch) as error:
        warn(error)
        return 1
    for problem in verdict.problems[:20]:
        warn(f"{cache}: {problem}")
    if not verdict.ok:
        warn(f"{cache}: {len(verdict.problems)} problem(s); make the cache again with --overwrite.")
        return 1
    say(f"{cache}: whole; {verdict.digests:,} digests over {in_words(verdict.nbytes)} agree")
    return 0
