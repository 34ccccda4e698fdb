"""How a cache is made again: its recipe, and whether its model and its data are on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probekit.activations import ActivationCache
from probekit.addresses import offline
from probekit.errors import CacheError, ModelError, ProbekitError, UsageError
from probekit.models.adapted.composing import is_adapter, parts_of
from probekit.models.find import MINILM, minilm_folder, resolve_model
from probekit.models.folder import config_digest, tokenizer_digest, weights_digest
from probekit.provenance.cards import writing
from probekit.provenance.study_folder import maker_of
from probekit.recipe import Read, Recipe
from probekit.tasks import DATASETS, GRAMMARS, SENTENCES, Task, load_task, task_folders
from probekit.tasks.context import in_context
from probekit.tasks.files.stream import StreamedSplit, is_stream, stream_task

RUN = "RUN-FOLDER"
"""A placeholder for the folder of a run, which cannot be derived from its name."""


@dataclass(frozen=True, slots=True)
class Place:
    """A task as :func:`load_task` takes it: its name, and the folder of its files."""

    task: str
    data_dir: Path | None = None

    @classmethod
    def of(cls, recipe: Recipe | None) -> Place | None:
        """The place that a recipe reads."""
        arguments = {} if recipe is None else recipe.arguments
        task, folder = arguments.get("task"), arguments.get("data_dir")
        return cls(task, Path(folder) if folder else None) if isinstance(task, str) else None

    @classmethod
    def all_of(cls, recipe: Recipe | None, out: Path) -> Iterator[Place]:
        """The place that a recipe reads; a task file also seen from the folder of the cache and those above it."""
        place = cls.of(recipe)
        if recipe is None or place is None:
            return
        yield place
        if Path(place.task).suffix:  # a file
            yield from (replace(place, task=str(folder / place.task)) for folder in out.absolute().parents[:3])


@dataclass(frozen=True, slots=True)
class Found:
    """The model and the data of a cache; ``missing`` describes what is missing, "" if nothing is."""

    missing: str
    model: str | Path | None = None
    data: Place | None = None


def recipe_of_spec(
    spec: Mapping[str, Any], out: str | Path, model: str | Path | None = None, data: Place | None = None
) -> Recipe:
    """The recipe of a cache that does not hold one, derived from its spec.

    Parameters
    ----------
    spec : mapping
        Spec of the cache.
    out : path
        The path of the new cache.
    model : path, optional
        The folder of the model, if its name does not locate it; a run trained on this machine needs it, otherwise the
        recipe contains RUN-FOLDER.
    data : Place, optional
        Name and folder of its task, which a spec does not record.
    """
    place = data or Place(str(spec["task"]))
    named = RUN if "step" in spec else spec["model"]
    stateful = spec.get("stateful")
    arguments: dict[str, Any] = {
        "model": model or named,
        "task": place.task,
        "data_dir": place.data_dir,
        "split": spec["split"],
        "limit": spec["n"],  # of a whole split, too: it is as many as there were
        "data_seed": spec.get("data_seed"),
        "context": spec.get("context"),
        "pooling": list(spec["pooling"]) or ["none"],
        "tokens": bool(spec["tokens"]) or (False if spec.get("kind") == "sequence-labelling" else None),
        "token_level": "piece" if spec["tokens"] == "chosen" else spec["tokens"] or None,
        "positions": spec.get("positions"),
        "generate": spec.get("generate"),
        "decoder": spec.get("part") == "decoder" or None,
        "pairs": spec["pairs"],
        "dtype": spec.get("dtype"),
        "store": spec["store"],
        "layers": spec.get("only"),
        "device": None if spec.get("device") in (None, "cpu") else spec["device"],
        "random_weights": spec.get("random_weights"),
        "revision": spec.get("revision"),
        "model_name": None if model is None or "step" in spec else spec["model"],
        "max_length": spec.get("cut_at"),
        "shard_size": spec.get("shard_size"),
        "stateful": bool(stateful) or None,
        "batch_size": stateful or None,
        "allow_nonfinite": bool(spec.get("allow_nonfinite")) or None,
        "out": out,
    }
    return Recipe.of("cache_activations", {key: value for key, value in arguments.items() if value is not None})


def recipe_of_read(read: Read, out: Path, folder: Path, sources: Sources) -> Recipe:
    """The recipe that makes a cache that a card has read, at ``out``.

    Parameters
    ----------
    read : Read
        Of the card, perhaps a stranger's.
    out : Path
        The path of the new cache.
    folder : Path
        The folder to which relative paths of the card refer.
    sources : Sources
        The places that are searched for models and data.

    Raises
    ------
    UsageError
        If the card contains neither recipe nor spec of the cache, or if model or data are missing.
    """
    recorded, spec = _recorded_recipe(read), read.about.get("spec")
    if what := piped(read):
        raise UsageError(f"the cache {read.path} cannot be made again here: {what}.")
    if recorded is not None and _is_here(recorded, folder):
        recipe = writing(recorded, {"out": str(out)})
    elif isinstance(spec, dict):
        place = Place.of(recorded)
        found = sources.find(spec, places=[place] if place else [], verify=True)
        if found.missing:
            raise UsageError(f"the cache {read.path} cannot be made again: {found.missing}.")
        recipe = recipe_of_spec(spec, out, found.model, found.data)
    else:
        raise UsageError(f"the card does not say how the cache {read.path} was made.")
    recipe.check()
    return recipe


def piped(read: Read) -> str:
    """How a cache of standard input is made again; "" for a cache of other data."""
    recipe = _recorded_recipe(read)
    if recipe is None or recipe.arguments.get("task") != "-":
        return ""
    again = replace(recipe, leaves={**recipe.leaves, "out": read.path})
    return f"its texts were standard input, which is not kept; pipe them into {again} once more"


def _recorded_recipe(read: Read) -> Recipe | None:
    """The recipe of a cache in a card; None if another function made the cache."""
    if (recorded := read.about.get("recipe")) is None:
        return None
    recipe = Recipe.from_json(recorded)
    return recipe if recipe.function == "cache_activations" else None


def _is_here(recipe: Recipe, folder: Path) -> bool:
    """Whether the folders of model and data in a recipe exist; names on the hub do not count."""
    model, data = recipe.arguments.get("model"), recipe.arguments.get("data_dir")
    local = isinstance(model, str) and (folder / Path(model).expanduser()).is_dir()
    return local and (not isinstance(data, str) or (folder / Path(data).expanduser()).is_dir())


def how_made(read: Read, path: Path) -> str:
    """The command that made a cache, in words, as far as it is known; and what is not known."""
    recipe, spec = maker_of(path) or _recorded_recipe(read), read.about.get("spec")
    if recipe is not None:
        return f"it was made by {replace(recipe, leaves={**recipe.leaves, 'out': recipe.leaves.get('out', read.path)})}"
    if not spec:
        return ""
    begin = "it was made by"
    lacks = [] if str(spec["task"]).startswith("grammar:") else ["--data-dir, if its data were in a folder"]
    if "step" in spec:
        run = f"the run {spec.get('checkpoint')} at step {spec['step']}"
        begin = f"it was made from {run}, whose folder must be found, or trained first:"
    elif "/" not in str(spec["model"]):
        lacks.append(f"the model's folder, if {spec['model']} is not a model on the hub")
    sentence = f"{begin} {recipe_of_spec(spec, read.path)}"
    return sentence + (f" (not known: {'; '.join(lacks)})" if lacks else "")


def wrong_cache(path: Path, spec_id: str) -> str:
    """A sentence if a cache has changed; "" if not."""
    try:
        with ActivationCache(path) as cache:
            return "" if cache.spec_id == spec_id else f"{path} holds other activations than it did"
    except CacheError as error:
        return str(error)


class Sources:
    """Models and data from which caches may have been made, each read once. Nothing is downloaded.

    Parameters
    ----------
    models : iterable of path
        Folders, or names of the hub.
    data_dir : path, optional
        Folder of the tasks' files, or with a folder for each; the hub's local cache is searched, too.
    """

    def __init__(self, models: Iterable[str | Path] = (), data_dir: str | Path | None = None) -> None:
        self.models = tuple(models)
        self.data_dir = None if data_dir is None else Path(data_dir)
        self._known: dict[tuple[Any, ...], Any] = {}

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def find(
        self,
        spec: Mapping[str, Any],
        more: Iterable[str | Path] = (),
        *,
        places: Iterable[Place] = (),
        verify: bool = True,
    ) -> Found:
        """Find model and data from which a cache of this spec can be made again.

        The model must be a known one, or in the hub's local cache under the spec's name; the task must be at one of
        the places or have a name that finds it, and its split must have the digest of the spec.

        Parameters
        ----------
        spec : mapping
            Of the cache.
        more : iterable of path
            Further models, tried first.
        places : iterable of Place
            Places where its data may be.
        verify : bool
            Also read the files of the hub's model, and compare their digests with the spec.
        """
        if not (candidates := list(self._places(str(spec["task"]), places))):
            return Found("its data cannot be found by the name of its task")
        digests = spec.get("weights_digest"), spec.get("tokenizer_digest")
        random, revision = spec.get("random_weights") is not None, spec.get("revision")
        folders = ((m, _model_folder(m, revision)) for m in (*more, *self.models, MINILM))
        model = next((m for m, f in folders if f and self._digests(f, random=random) == digests), None)
        if model is None:
            here = None if "step" in spec else _in_hub_cache(str(spec["model"]), revision)
            if not here or (verify and self._digests(here, random=random) != digests):
                return Found("its model is not found (give its folder with --model)")
        part = str(spec["split"]), int(spec["n"]), int(spec.get("data_seed", 0)), str(spec.get("context", "none"))
        sharded = "shard_size" in spec
        now = {place: self._data_digest(place, *part, sharded=sharded) for place in dict.fromkeys(candidates)}
        for place, digest in now.items():
            if digest and digest == spec.get("data_digest"):
                return Found("", model, place)
        missing = (
            "its data have changed"
            if any(now.values())
            else "its data are not found (give their folder with --data-dir)"
        )
        return Found(missing, model)

    def _places(self, task: str, known: Iterable[Place]) -> Iterator[Place]:
        """Places where the data of a task may be."""
        base, _, part = task.partition(":")
        yield from known
        generated = {"grammar": GRAMMARS, "treebank": SENTENCES}
        if part.partition(":")[0] in generated[base] if base in generated else base in DATASETS:
            if self.data_dir is not None and base != "grammar":
                yield from (Place(task, folder) for folder in task_folders(base, self.data_dir))
            yield Place(task)  # the hub's local cache, or nowhere for what is generated

    def _digests(self, folder: Path, *, random: bool) -> tuple[str, str] | None:
        """Digests of weights and tokenizer, as in a spec; None if the folder does not hold a model."""

        def read() -> tuple[str, str] | None:
            try:
                return (config_digest if random else weights_digest)(folder), tokenizer_digest(folder)
            except (ProbekitError, OSError):
                return None

        found: tuple[str, str] | None = self._once(("model", folder, random), read)
        return found

    def _data_digest(
        self, place: Place, split: str, n: int, seed: int, context: str, *, sharded: bool = False
    ) -> str | None:
        """Digest of ``n`` examples of a split, drawn with a seed, as in a spec; None if they are not found.

        Shards are made of a file of texts in parts, which has a digest of its own.
        """
        from probekit.activations.writing.request import data_digest

        def read() -> str | None:
            task: Task | None = self._once(("task", place, split), lambda: _load(place, split))
            if task is None or split not in task.splits:
                return None
            whole = in_context(task, context).split(split)
            if isinstance(whole, StreamedSplit):
                whole = whole if sharded else whole.whole()
            part = whole if isinstance(whole, StreamedSplit) and n == len(whole) else whole.sample(n, seed)
            return data_digest(part.digest(), task.label_names)

        found: str | None = self._once(("data", place, split, n, seed, context, sharded), read)
        return found


def _load(place: Place, split: str) -> Task | None:
    try:
        with nullcontext() if place.task.startswith("grammar:") else offline():
            if is_stream(place.task):
                return stream_task(place.task, split=split)
            return load_task(place.task, place.data_dir)
    except (ProbekitError, OSError):
        return None


def _model_folder(model: str | Path, revision: str | None) -> Path | None:
    """The folder of a model: itself, that of the extra ``demo``, or one in the hub's local cache; None without it."""
    if len(parts_of(str(model))) > 1 or is_adapter(Path(model)):
        try:
            with offline():
                return resolve_model(model, revision)
        except ModelError:
            return None
    if Path(model).is_dir():
        return Path(model)
    if str(model) == MINILM:
        try:
            return minilm_folder()
        except ModelError:
            return None
    return _in_hub_cache(str(model), revision)


def _in_hub_cache(model: str, revision: str | None) -> Path | None:
    """The folder of a hub model in the local cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, "config.json", revision=revision)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None
