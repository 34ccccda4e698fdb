"""What a shared encoder is trained on: an objective has examples, a head with its loss, and a metric.

The objectives of Bowman et al. (2018, section 3) by name: ``language-model:CORPUS``, ``translate:CORPUS``,
``skip-thought:CORPUS``, ``dissent:CORPUS``, ``reply:CORPUS``, ``respond:CORPUS``, and any task (``sst2``). Beside
them ``masked-language-model:CORPUS`` and ``next-sentence:CORPUS`` (Devlin et al. 2019), ``contrast:CORPUS`` (in-batch
negatives) and ``denoise:CORPUS`` (Hill et al. 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.adaptation.data.validation import DEFAULT_SHARE, divided
from probekit.adaptation.heads.language_model_head import LanguageModelHead
from probekit.adaptation.pretraining.classes import labelled
from probekit.adaptation.pretraining.objective import Encoded, PretrainingObjective, Requested, corpus_of
from probekit.adaptation.pretraining.words import check_masking, decode, denoise
from probekit.errors import UsageError, did_you_mean
from probekit.files import digest_of_content
from probekit.plugins import added
from probekit.runtime import Progress, no_progress
from probekit.tasks import load_task
from probekit.tasks.load import DATASETS
from probekit.tasks.task import Split, Task

if TYPE_CHECKING:
    from probekit.adaptation.pretraining.options import EncoderOptions

CHECKS: dict[str, Callable[[Encoded], object]] = {
    "language-model": lambda encoder: LanguageModelHead.of_encoder(encoder.model, 4),
    "masked-language-model": check_masking,
}
"""Raise UsageError for encoders that cannot learn an objective."""
OBJECTIVES: Mapping[str, Callable[[Requested], PretrainingObjective]] = added("probekit.objectives")
"""The objectives on text, ``NAME:CORPUS``; the others are names of tasks."""


def attentive(names: Sequence[str], options: EncoderOptions) -> list[str]:
    """The objectives whose decoders attend to the encoder's states.

    Raises
    ------
    UsageError
        If ``options.attention`` names an objective without a decoder, or one with a corpus that is not among ``names``.
    """
    decoders = [kind for kind, make in OBJECTIVES.items() if make in (decode, denoise)]
    for name in options.attention:
        if name not in ("all", "none", *decoders, *(one for one in names if one.partition(":")[0] in decoders)):
            which = "with a decoder" if name in (*names, *OBJECTIVES) else "of this run"
            raise UsageError(
                f"attention is for {name!r}, which is not an objective {which}; objectives with a decoder are "
                f"{', '.join(decoders)}."
            )
    return [name for name in names if name.partition(":")[0] in decoders and options.attends(name)]


def make_objective(
    name: str,
    encoder: Encoded,
    options: EncoderOptions,
    place: Path,
    *,
    module: str = "head",
    progress: Progress = no_progress,
) -> PretrainingObjective:
    """The objective called ``name``, with its tokenised examples.

    Parameters
    ----------
    place : Path
        A new folder for tokenised text.

    Raises
    ------
    UsageError
        For an unknown name, or an objective that does not fit the encoder or the corpus.
    DataError
        For data without examples, without labels on dev, or of which the vocabulary has no word.
    """
    kind = name.partition(":")[0]
    if kind not in OBJECTIVES:
        task, parts = _splits(name, options)
        return labelled(name, task, *parts, encoder, options, module)
    if kind in CHECKS:
        CHECKS[kind](encoder)  # before the text is read
    place.mkdir(parents=True)
    return OBJECTIVES[kind](Requested.of(name, encoder, options, place, module, progress))


def source_digests(name: str, options: EncoderOptions) -> dict[str, str]:
    """The digests of what an objective is trained and validated on: of a corpus's files, or of a task's splits."""
    if name.partition(":")[0] in OBJECTIVES:
        files = corpus_of(name, options).files
        return {f"{name} {_within(file, options.data_dir)}": digest_of_content(file) for file in files}
    return {f"{name} {part.name}": part.digest() for part in _splits(name, options)[1]}


def _splits(name: str, options: EncoderOptions) -> tuple[Task, tuple[Split, Split]]:
    """A task with its examples to train and validate on: a tenth of train if there is no dev split."""
    kind, colon, rest = name.partition(":")
    if Path(name).suffix == ".txt" or (
        colon and kind not in (*DATASETS, "grammar", "treebank") and not Path(kind).exists()
    ):
        what = f"unknown objective {kind!r}; {did_you_mean(kind, list(OBJECTIVES))}" if colon else f"{name} is a text."
        raise UsageError(f"{what} Write the objective before the corpus, as in skip-thought:{rest or name}.")
    try:
        task = load_task(name, data_dir=options.data_dir if kind in (*DATASETS, "treebank") else None)
    except UsageError as error:
        text = ", ".join(f"{kind}:CORPUS" for kind in OBJECTIVES)
        raise UsageError(f"{error} The objectives on text are {text}.") from None
    train = task.split("train").sample(options.limit, options.data_seed)
    names = [split for split in task.splits if split.startswith("dev")]  # mnli has dev-matched
    if names:
        dev = task.split(names[0])
    else:
        train, dev, _ = divided(task.kind, train, DEFAULT_SHARE, options.data_seed)
    return task, (train, dev.sample(options.dev_limit, options.data_seed))


def _within(file: Path, folder: Path | None) -> Path:
    """A file by its place in the data folder, so that both may move; by its name outside."""
    inside = folder is not None and file.is_relative_to(folder)
    return file.relative_to(folder) if folder is not None and inside else Path(file.name)
