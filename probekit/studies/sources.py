"""The inputs of a study: tasks, models and corpora, with digests of their content and their sizes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import xxhash

from probekit.adaptation.pretraining.options import EncoderOptions
from probekit.domains.corpora import corpus_digest
from probekit.errors import DataError, ProbekitError, UsageError
from probekit.files import digest_of_content, read_json
from probekit.models.find import resolve_model
from probekit.models.identity import identify
from probekit.studies.steps import Outside
from probekit.tasks import DATASETS, load_task, task_folders
from probekit.tasks.pairs import Pairs, load_pairs
from probekit.tasks.targets import about_spans
from probekit.tasks.task import Task, TaskKind
from probekit.toml import read_toml

log = logging.getLogger(__name__)
T = TypeVar("T")
SEQUENTIAL = 2.0
"""A weight of an LSTM, which reads one word after another, takes as long as this many of a transformer."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The approximate number of weights in a model's blocks, its width, and its number of cached layers."""

    weights: float
    width: int
    layers: int


@dataclass(slots=True)
class Sources:
    """Tasks and models of a study, each read once per study.

    Attributes
    ----------
    data_dir : Path | None
        Folder with one subfolder per task (default: the hub).
    named : Mapping[str, str]
        Subfolders of tasks whose folder has another name.
    models : Mapping[str, str]
        Hub ids or folders of the models, by their names in tables.
    """

    data_dir: Path | None
    named: Mapping[str, str]
    models: Mapping[str, str]
    _known: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """The value or error of ``make``, which is called once per key."""
        if key not in self._known:
            try:
                self._known[key] = make()
            except (ProbekitError, OSError) as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, Exception):
            raise found
        return cast("T", found)

    # tasks

    def folder(self, task: str) -> Path | None:
        """The folder of a task's files; None for the hub, and for tasks without files."""
        base = task.split(":", 1)[0]
        if self.data_dir is None or base == "grammar" or ".toml" in task:
            return None
        shared = DATASETS[base].folder if base in DATASETS else ""
        if name := next((self.named[key] for key in (task, base, shared) if key in self.named), ""):
            return self.data_dir / name
        return task_folders(base, self.data_dir)[0] if self.data_dir.is_dir() else self.data_dir

    def task(self, name: str) -> Task:
        """The task; ProbekitError or OSError if it cannot be read."""
        return self._once(("task", name), lambda: load_task(name, self.folder(name)))

    def pairs(self, name: str) -> Pairs:
        """The minimal pairs; ProbekitError or OSError if they cannot be read."""
        return self._once(("pairs", name), lambda: load_pairs(name, self.folder(name)))

    def labels_words(self, task: str) -> bool:
        """Whether a task labels words; False if it cannot be read, which its caches report."""
        try:
            return self.task(task).kind is TaskKind.SEQUENCE_LABELLING
        except (ProbekitError, OSError):
            return False

    def labels_spans(self, task: str) -> bool:
        """Whether labels of a task are about spans of a text, or of both texts of a pair; False as above."""
        try:
            return self._once(("spans", task), lambda: about_spans(self.task(task)))
        except (ProbekitError, OSError):
            return False

    def labelled(self, task: str, split: str) -> bool:
        """Whether any example of a split has a label."""
        return any(example.label is not None for example in self.task(task).split(split))

    def unfit(self, name: str, train: str, dev: str) -> str:
        """Why no probe can be fitted on one split and evaluated on another, in words; "" where one can."""
        return self._once(("unfit", name, train, dev), lambda: self._unfit(name, train, dev))

    def _unfit(self, name: str, train: str, dev: str) -> str:
        try:
            task = self.task(name)
            parts = [task.split(split) for split in (train, dev)]
        except (ProbekitError, OSError):  # the caches say why
            return ""
        here = f" in {name}" if ".toml" in name else ""
        files = read_toml(Path(name))[0].get("splits", {}) if name.endswith(".toml") else {}
        for part in parts:
            if all(example.label is None and not example.targets for example in part):
                now = f" ({files[part.name]})" if part.name in files else ""
                return (
                    f"{name}: none of the {len(part):,} examples of {part.name}{now} has a label, and "
                    f"probes need labels. Name a labelled file for {part.name}{here}."
                )
        now = f" (now {files[dev]})" if dev in files else ""
        learned, evaluated = ({(e.words or e.text, e.pair) for e in part} for part in parts)
        if evaluated <= learned:
            return (
                f"{name}: every text of {dev} is also in {train}, so the scores would say nothing about new "
                f"texts. Name a file with other texts for {dev}{here}{now}."
            )
        return ""

    def set_apart(self, task: str, dev: str, asked: float | None) -> float | None:
        """The share of train that replaces ``dev``; for a task that cannot be read, the requested share."""
        from probekit.adaptation.data.validation import validation_share

        try:
            return validation_share(self.task(task), dev, asked)
        except (ProbekitError, OSError):
            return asked

    def task_arguments(self, name: str, *splits: str | None) -> dict[str, Any]:
        """The arguments for a task, identified by the digests of the splits that are read."""
        read = {s: self._once(("digest", name, s), self.task(name).split(s).digest) for s in splits if s}
        folder = self.folder(name)
        where = {"data_dir": Outside(str(folder))} if folder else {}
        return {"task": Outside(name, f"{name} {json.dumps(read)}"), **where}

    def examples(self, name: str, split: str, limit: int | None = None) -> int:
        """The number of examples in a split, at most ``limit``."""
        count = len(self.task(name).split(split))
        return min(count, limit or count)

    def pieces(self, name: str, split: str, limit: int | None = None) -> float:
        """The approximate number of pieces in a split, or in ``limit`` of its examples."""
        part = self.task(name).split(split)
        counts = self._once(
            ("pieces", name, split), lambda: [1.35 * len(f"{e.text} {e.pair or ''}".split()) + 3 for e in part]
        )
        return float(sum(counts)) * min(1.0, (limit or len(counts)) / max(1, len(counts)))

    def objective(self, name: str, options: EncoderOptions) -> Outside:
        """An objective of pretraining, identified by the digests of its examples."""
        from probekit.adaptation.pretraining.objectives import source_digests

        read = self._once(("objective", name, options), lambda: source_digests(name, options))
        return Outside(name, f"{name} {json.dumps([*read.values()])}")

    # models

    def model_arguments(self, name: str) -> dict[str, Any]:
        """The arguments for a model, identified by the digests of weights, tokenizer and configuration."""
        where = self.models[name]
        return {"model": Outside(where, self.model_digest(where)), "model_name": name}

    def model_digest(self, where: str) -> str:
        """The digest of a model's weights, tokenizer and configuration."""
        return self._once(("model", where), lambda: _model_digest(where))

    def file_digest(self, where: str) -> str:
        """The digest of a file's content."""
        return self._once(("file", where), lambda: digest_of_content(Path(where)))

    def size(self, name: str) -> ModelSize:
        """The size of a model."""
        where = self.models[name]
        return self._once(("size", where), lambda: _model_size(where))

    def check_models(self) -> None:
        """Raise the error of the first model if none can be read."""
        errors = []
        for model in self.models:
            try:
                self.size(model)
                return
            except (ProbekitError, OSError) as error:
                errors.append(error)
        raise errors[0]

    # corpora

    def corpus(self, name: str, place: str) -> Outside:
        """A corpus as ``NAME=PLACE``, identified by the digest of its content."""
        path = place if place.startswith("hub:") else str((self.data_dir or Path()) / place)
        known = self._once(("corpus", path), lambda: _corpus_digest(path))
        return Outside(f"{name}={path}", f"{name}={known}")


def _model_digest(where: str) -> str:
    identity = identify(where, name="model")
    return xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode())


def _model_size(where: str) -> ModelSize:
    return _size(read_json(resolve_model(where) / "config.json"))


def configured_size(encoder: Mapping[str, Any]) -> ModelSize:
    """The size of an untrained encoder, from the arguments of :func:`probekit.new_encoder`."""
    config = encoder["config"]
    return _size(config if isinstance(config, Mapping) else read_json(Path(config)))


def _size(config: Mapping[str, Any]) -> ModelSize:
    if config.get("model_type") == "bilstm":
        from probekit.models.bilstm.config import BiLSTMConfig

        sizes = BiLSTMConfig(**{key: value for key, value in config.items() if key != "model_type"})
        cells, inputs = sizes.cells, sizes.embedding_size
        joint = 2 if sizes.directions == "joint" else 1
        rows = inputs + cells + (sizes.num_hidden_layers - 1) * (joint + 1) * cells
        return ModelSize(SEQUENTIAL * 8.0 * cells * rows, sizes.hidden_size, sizes.num_hidden_layers + 2)
    config = config.get("text_config", config)
    width = next((config[key] for key in ("hidden_size", "n_embd", "d_model", "dim") if key in config), 768)
    depths = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    depth = next((config[key] for key in depths if key in config), 12)
    return ModelSize(12.0 * width**2 * depth, int(width), int(depth) + 1)


def _corpus_digest(place: str) -> str:
    try:
        return corpus_digest(place)[0]
    except DataError as error:
        raise UsageError(f"{error} Give its path: --set domains.0.corpora.NAME=PATH.") from None
