"""Tasks by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from probekit.calls import checked
from probekit.display import CORPORA, OBJECTIVES, shown_file
from probekit.errors import DataError, UsageError, close_names
from probekit.files import is_path
from probekit.plugins import load
from probekit.tasks.datasets import glue, paraphrases, protoroles, spans, statements, stories, texts, treebanks, ud
from probekit.tasks.datasets.published import Datasets, published
from probekit.tasks.files.description import SUFFIXES, Dataset
from probekit.tasks.folders import plain
from probekit.tasks.grammar import GRAMMARS, grammar_task
from probekit.tasks.kept import kept
from probekit.tasks.pairs import pairs
from probekit.tasks.task import Task
from probekit.tasks.union import JOIN, union

__all__ = ["DATASETS", "GRAMMARS", "SENTENCES", "is_task", "load_task", "shown_task", "treebank_task"]

DATASETS = Datasets()
"""What is known of each data set before it is loaded, by its name."""

READERS: dict[str, Callable[[Dataset, str | Path | None, str | None], Task]] = {
    "": published,
    "pairs": pairs,
    "universal-ner": ud.universal_ner,
    "art-dates": statements.art_dates,
    **{f.__name__: f for f in (glue.cola, glue.mnli, glue.mrpc, glue.sst2, glue.stsb)},
    **{
        f.__name__: f
        for f in (protoroles.spr1, protoroles.spr2, statements.persona, statements.places, statements.truth)
    },
    **{f.__name__: f for f in (spans.chunks, spans.copa, spans.marked, spans.pronouns, spans.wic, spans.wsc)},
    **{f.__name__: f for f in (stories.cbt, stories.convai2, stories.lambada, treebanks.ccgbank, treebanks.sst_trees)},
    **{f.__name__: f for f in (paraphrases.of_language, paraphrases.quora)},
    **{
        f.__name__: f
        for f in (texts.dailydialog, texts.imdb, texts.senteval, texts.sick, texts.squad, texts.trec, texts.tweets)
    },
    **{f.__name__: f for f in (ud.conll2003, ud.features, ud.relations, ud.ud)},
}
"""The functions of ours that a data set's file may name; that of another package names "module:function"."""

SENTENCES = tuple(name.removeprefix("senteval-") for name in DATASETS if name.startswith("senteval-"))
"""The names that may follow ``treebank:``."""


def shown_task(name: str) -> str:
    """The display name of a task or objective in figures, tables and reports: the one its authors use, or words.

    A name that nobody gave it yet is its own, without the folder and the suffix of a file.

    Parameters
    ----------
    name : str
        A task's name, as in :func:`load_task` and in rows.

    Examples
    --------
    >>> shown_task("sst2"), shown_task("mnli:fiction"), shown_task("grammar:similarity"), shown_task("data/mine.toml")
    ('SST-2', 'MNLI: fiction', 'similarity', 'mine')
    >>> shown_task("language-model:wikitext-2"), shown_task("truth:neg_cities")
    ('language model: WikiText-2', 'Truth: cities, negated')
    """
    base, colon, part = name.partition(":")
    if base == "grammar":
        return part
    if base == "treebank":
        base, colon, part = f"senteval-{part}".partition(":")
    title = DATASETS[base].shown if base in DATASETS else OBJECTIVES.get(base)
    if title is None:
        return shown_file(name)
    part, comma, more = part.partition(", ")  # a line of a scoreboard may name how it is measured
    is_treebank = base.startswith(("ud", "universal-ner", "senteval-"))  # whose codes are names, such as de_gsd
    words = CORPORA.get(part, part) if is_treebank else shown_file(part)
    return f"{title}{': ' * bool(colon)}{words}{comma}{more}"


@checked
def load_task(name: str, data_dir: str | Path | None = None, *, groups: str | None = None) -> Task:
    """The task called ``name``.

    Parameters
    ----------
    name : str
        A dataset (``cola``, ``trec-50`` …; ``ud:TREEBANK`` and ``universal-ner:TREEBANK`` choose a treebank),
        ``grammar:NAME``, ``treebank:NAME`` or ``treebank:NAME:TREEBANK`` (one of the ten tasks of Conneau et al. 2018,
        made from the treebank in ``data_dir``), or the path of a TOML file that describes your own data.
        ``TASK:DOMAIN`` selects one domain of a task whose data name the domain of each text (``mnli:fiction``).
        ``TASK+TASK…`` gives the distinct sentences of several tasks, without labels, for one cache that serves all of
        them.
    data_dir : path, optional
        Folder with the dataset's files, directly or in a subfolder; None loads from the Hugging Face hub. For a TOML
        file: the folder that its file names are relative to, instead of the TOML file's folder.
    groups : str, optional
        For a TOML file: the column that says which examples belong together, instead of the one named in the file.

    Returns
    -------
    Task
        Its splits, labels and metrics.

    Raises
    ------
    UsageError
        If the name or domain is unknown; the message lists the known ones.
    DataError
        If the data cannot be read.

    Examples
    --------
    >>> task = load_task("grammar:acceptability")
    >>> len(task.split("dev")), task.label_names
    (616, ('unacceptable', 'acceptable'))
    """
    name = str(name)
    if JOIN in name and not is_path(name):
        return union(name, [load_task(part, data_dir, groups=groups) for part in name.split(JOIN)])
    return kept((name, str(data_dir), groups), lambda: _load(name, data_dir, groups))


def _load(name: str, data_dir: str | Path | None, groups: str | None) -> Task:
    whole, toml, domain = name.partition(".toml:")
    if toml:
        return load_task(f"{whole}.toml", data_dir, groups=groups).of_domain(domain)
    if name.endswith(".toml"):
        from probekit.tasks.files.custom import custom_task

        return custom_task(name, data_dir, groups=groups)
    if groups is not None:
        raise UsageError(f"{name} has no column {groups!r}; groups = COLUMN is only for data described by a TOML file.")
    base, _, part = name.partition(":")
    if base == "grammar":
        return _grammar(part, data_dir)
    if base == "treebank":
        return treebank_task(part, data_dir)
    known = {plain(name): name for name in DATASETS}
    if plain(base) not in known:
        raise UsageError(_unknown(name))
    dataset = DATASETS[known[plain(base)]]
    if part and not dataset.part:
        return load_task(base, data_dir).of_domain(part)
    read = load(dataset.reader) if ":" in dataset.reader else READERS[dataset.reader]
    task: Task = read(dataset, data_dir, part or None)
    return task


def is_task(name: str) -> bool:
    """Whether a word names a task: of a dataset, a grammar, or a TOML file; nothing is read.

    Examples
    --------
    >>> is_task("rte"), is_task("mnli:fiction"), is_task("reviews.toml"), is_task("bert-base-uncased")
    (True, True, True, False)
    """
    base = plain(name.partition(JOIN)[0].partition(":")[0])
    return base in ("grammar", "treebank") or ".toml" in name or base in map(plain, DATASETS)


def _grammar(part: str, data_dir: str | Path | None) -> Task:
    if part not in GRAMMARS:
        raise UsageError(_unknown(f"grammar:{part}"))
    if data_dir is not None:
        raise UsageError(f"grammar:{part} is generated and reads no files; leave out the data folder.")
    return grammar_task(part)


def treebank_task(part: str, data_dir: str | Path | None, seed: int = 0) -> Task:
    """The task ``treebank:PART``, where PART is NAME or NAME:TREEBANK; ``seed`` is that of what it draws.

    Raises
    ------
    UsageError
        If there is no such task.
    DataError
        If no folder is given, or the task cannot be made from its treebank.
    """
    from probekit.tasks.sentences.tasks import sentence_task

    name, _, treebank = part.partition(":")
    if name not in SENTENCES:
        raise UsageError(_unknown(f"treebank:{name}"))
    if data_dir is None:
        raise DataError(
            f"treebank:{name} is made from a treebank in a folder: give one with .conllu files, as from "
            "https://universaldependencies.org, or with .mrg files (--data-dir, or data_dir in Python)."
        )
    return sentence_task(name, data_dir, treebank or None, seed=seed)


def _unknown(name: str) -> str:
    names = [*DATASETS, *(f"grammar:{part}" for part in GRAMMARS), *(f"treebank:{part}" for part in SENTENCES)]
    if name and (Path(name).suffix.lower() in SUFFIXES or Path(name).is_dir()):
        return (
            f"{name} holds data and is not a task; probekit tasks new {name} writes the TOML file that describes them."
        )
    suffix = Path(name).suffix
    if suffix and close_names(suffix, [".toml"]):
        beside = Path(name).with_suffix(".toml")
        return f"{name} is not a task; the name of a task file ends in .toml." + (
            f" Did you mean {beside}?" if beside.is_file() else ""
        )
    close = close_names(name.lower(), names, most=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "probekit tasks lists them."
    return f"unknown task {name!r}; {hint} A TOML file (its name ends in .toml) describes your own data."
