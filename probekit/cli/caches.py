"""What the commands that write and read caches print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from probekit.cli.made import made, work
from probekit.cli.show import say, warn
from probekit.cli.terminal import show_facts
from probekit.errors import UsageError
from probekit.files import in_words
from probekit.runtime import processes

if TYPE_CHECKING:
    from probekit.activations import ActivationCache
    from probekit.activations.foreign.export import Export
    from probekit.activations.options import CacheOptions
    from probekit.runtime import Progress


@made(instead=True)
def cache_activations(*more: str, model: str, task: str, out: str | None, options: CacheOptions, **others: Any) -> None:
    """Caches of all models that are named, or that a pattern matches.

    Parameters
    ----------
    more
        Further models, cached one after another.
    """
    import probekit
    from probekit.cli.patterns import expand, natural

    models = sorted({name for pattern in (model, *more) for name in expand(pattern)}, key=natural)
    several = len(models) > 1
    inside = out is None or out.endswith("/") or (Path(out).is_dir() and options.shard_size is None)
    if several and not inside:
        named = ", ".join(models[:4]) + ", …" * (len(models) > 4)
        raise UsageError(
            f"--out {out} is one file, but there are {len(models)} models to cache ({named}); give a folder ({out}/), "
            "or omit --out."
        )
    if several and task == "-":
        raise UsageError(f"standard input can be read once, but there are {len(models)} models; write a file first.")
    for i, name in enumerate(models, 1):
        with _watching(f"{i}/{len(models)} " if several else "") as (watch, seen):
            cache = probekit.cache_activations(
                name, task, options=options, out=out, wait=partial(_waiting, seen), progress=watch, **others
            )
        with cache:
            if not processes()[0]:  # only the first of torchrun's processes prints
                (_line if several else _summary)(cache, seen, options.workers)


def _waiting(seen: dict[str, float]) -> None:
    seen["others"] = 1
    if not processes()[0]:
        warn("probekit: another process is writing this cache; waiting for it.")


@contextmanager
def _watching(prefix: str) -> Iterator[tuple[Progress, dict[str, float]]]:
    """A progress bar, and what it measures: total seconds, seconds in the model ("model", if it ran), counts."""
    from probekit.progress import display

    began, seen = monotonic(), {"seconds": 0.0}
    with display() as progress:

        def watch(stage: str, done: int, total: int, /, **rates: float) -> None:
            if stage == "model":
                seen.setdefault("began", monotonic())
                seen.update(rates, model=max(monotonic() - seen["began"], 1e-9))
            elif stage == "examples" and done > seen.setdefault("first", done):  # shards that appear meanwhile
                seen["others"] = 1
            progress(prefix + stage, done, total, **rates)

        yield watch, seen
    seen["seconds"] = monotonic() - began


def _line(cache: Any, seen: dict[str, float], workers: int) -> None:
    """One of several caches."""
    from probekit.activations.description import unread

    counts, seconds = cache.spec["counts"], seen["seconds"]
    cut = f", {counts['truncated']:,} truncated" if counts["truncated"] else ""
    source = f"{seconds:.1f} s" if seen.keys() & {"model", "others"} else "already cached"
    say(f"{cache.path}: {len(cache):,} examples{cut}, {_layers(cache)}; {source}")
    if lost := unread(cache):
        say(lost)


def _summary(cache: Any, seen: dict[str, float], workers: int) -> None:
    from probekit.activations.description import unread

    counts, size = cache.spec["counts"], cache.nbytes
    say(cache.path)
    say(
        f"{len(cache):,} examples, {counts['unique']:,} distinct texts, {counts['pieces']:,} pieces; "
        f"{_layers(cache)}; {in_words(size)}"
    )
    repeated = counts["sequences"] - counts["unique"]
    notes = [
        f"{counts['truncated']:,} truncated at {cache.spec['reads_at_most']} pieces" if counts["truncated"] else "",
        f"{counts['empty']:,} without {_lacking(cache)}" if counts["empty"] else "",
        f"{repeated:,} repeated texts, each run once" if repeated else "",
    ]
    if any(notes):
        say("; ".join(filter(None, notes)))
    if lost := unread(cache):
        say(lost)
    if "model" not in seen:
        made = f"in {workers} processes" if workers > 1 else "other processes made it"
        say(f"{seen['seconds']:.1f} s; {made}" if "others" in seen else "already cached")
        return
    model, texts, pieces = seen["model"], seen["examples"], seen["tokens"]
    say(
        f"{seen['seconds']:.1f} s, of which {model:.1f} s in the model: {texts:,.0f} texts, "
        f"{texts / model:,.0f} a second; {pieces:,.0f} pieces, {pieces / model:,.0f} a second"
    )


def _lacking(cache: Any) -> str:
    """What a sequence that gives no vector lacks, and what is stored for it."""
    return f"a piece at {cache.spec['positions']} (NaN)" if "positions" in cache.spec else "content (zeros)"


def _layers(cache: Any) -> str:
    """The number of layers and their widths."""
    sites = "sites" in cache.spec
    widths = dict.fromkeys(cache.widths) if len(set(cache.widths)) == 1 or sites else cache.widths
    return f"{len(cache.layers)} {'sites' if sites else 'layers'} of width {', '.join(map(str, widths))}"


@made(instead=True)
def inspect(cache: Path, *, json: bool = False) -> None:
    """What a cache contains.

    Parameters
    ----------
    json
        Print the whole description as JSON.
    """
    from probekit.activations import ActivationCache
    from probekit.activations.description import describe, to_json

    with ActivationCache(cache) as opened:
        if json:
            say(to_json(opened))
        else:
            show_facts(describe(opened))


@made(instead=True)
def verify(cache: Path) -> int:
    """What is wrong with a cache; exit status 1 if anything is."""
    from probekit.errors import CacheCorrupt, CacheIncomplete, CacheMismatch

    try:
        verdict = work("verify", cache)
    except (CacheCorrupt, CacheIncomplete, CacheMismatch) as error:
        warn(error)
        return 1
    for problem in verdict.problems[:20]:
        warn(f"{cache}: {problem}")
    if not verdict.ok:
        shards = not cache.is_file()
        cure = "remove such shards, and run the same command again" if shards else "cache it again with --overwrite"
        warn(f"{cache}: {len(verdict.problems)} problem(s); {cure}.")
        return 1
    say(f"{cache}: intact; {verdict.digests:,} digests over {in_words(verdict.nbytes)} agree")
    return 0


@made()
def copy_cache(out: str) -> None:
    say(out)


@made()
def export(written: Export) -> None:
    say(f"{written.path}: {len(written.files)} files, {in_words(written.nbytes)}")
    for note in written.notes:
        warn(f"probekit: {note}.")


@made()
def import_activations(imported: ActivationCache) -> None:
    with imported as cache:
        layers = ", ".join(cache.layers)
        say(f"{cache.path}: {len(cache):,} examples, {layers}; {cache.spec['certificate']['verdict']}")
