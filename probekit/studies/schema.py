"""The sections of a study file, as validated values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator

from probekit.activations.pooling import Pooling
from probekit.adaptation.options import Regime
from probekit.analysis import Reads, analyses
from probekit.tables.options import Kind

Options = dict[str, Any]
Of = Literal["pretrained", "fine-tuned", "checkpoints", "random"]
if TYPE_CHECKING:
    RowsOf = str
    OfTasks = str
else:
    RowsOf = Literal[*analyses(), *("train", "table")]
    OfTasks = Literal[*(name for name, one in analyses().items() if one.in_suites)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Seeds = Annotated[list[Seed], Field(min_length=1)]
SET = ("out", "rows", "pooling", "published", "task", "data_dir", "split", "limit", "data_seed")
"""Options that the study sets itself."""
SET_IN_PRETRAINING = ("model", "on", "out", "seed", "data_dir", "run_name", "overwrite")
SET_IN_TASKS = (
    *("out", "rows", "pooling", "layers", "task", "data_dir", "split", "limit", "random_weights", "any_split"),
    *("device", "model", "train", "dev", "tasks"),
)


SET_IN_CACHES = (
    *("out", "task", "data_dir", "split", "limit", "data_seed", "stream", "model", "model_name", "revision"),
    *("random_weights", "pooling", "tokens", "token_level", "positions", "sites", "generate", "context"),
)


def not_set(options: Options, names: Collection[str] = SET) -> Options:
    """The options; ValueError if one is set by the study itself."""
    for name in options:
        if name.replace("-", "_") in names:
            raise ValueError(f"{name} is not allowed in options, because the study sets it")
    return options


Given = Annotated[Options, AfterValidator(not_set)]
GivenInPretraining = Annotated[Options, AfterValidator(partial(not_set, names=SET_IN_PRETRAINING))]
GivenInCaches = Annotated[Options, AfterValidator(partial(not_set, names=SET_IN_CACHES))]
GivenInTasks = Annotated[Options, AfterValidator(partial(not_set, names=SET_IN_TASKS))]


def page_name(name: str) -> str:
    """The name of a page, checked; ValueError if it is none."""
    if not name.removesuffix(".html") or not name.endswith(".html") or "/" in name:
        raise ValueError(f"{name!r} is not the name of a page, such as report.html")
    return name


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Pretrain(Section):
    """Encoders to pretrain with :func:`probekit.pretrain_encoder`: one for each name and seed.

    Attributes
    ----------
    on : dict[str, list[str]]
        Objectives by the encoder's name in tables; an empty list for the untrained encoder.
    encoder : str, default ''
        Which of the study's ``encoders`` to begin with (default: the only one).
    seeds : list[int], default [0]
        Seeds of initial weights and of training; runs of ``[[train]]`` on the encoder have the same seed.
    options : Options, default {}
        Options of ``probekit pretrain-encoder``.
    """

    function: ClassVar[str] = "pretrain_encoder"
    on: dict[str, list[str]] = Field(min_length=1)
    encoder: str = ""
    seeds: Seeds = [0]
    options: GivenInPretraining = {}


class Train(Section):
    """Training runs: one per model, task, regime and seed.

    Attributes
    ----------
    name : str, default ''
        Name of a variant, such as "joint", for the names of runs and for tables.
    models : list[str], default []
        Some of the study's models and pretrained encoders (default: all).
    limit, validation, data_seed : int, float or None, int
        As in ``probekit train``: train on this many examples, choose by a share of train, draw with this seed.
    teacher : str, default ''
        Name of another section: each run is distilled from its fine-tuning run on the same model and task with the same
        seed.
    transfer : bool, default False
        Also evaluate each run on the dev splits of the other tasks, which must have the same labels.
    options : Options, default {}
        Options of ``probekit train`` for both regimes; ``fine-tune`` and ``feature-extraction`` are for one of them.
    """

    tasks: list[str] = Field(min_length=1)
    name: str = ""
    models: list[str] = []
    regimes: list[Regime] = Field([Regime.FEATURE_EXTRACTION, Regime.FINE_TUNE], min_length=1)
    seeds: Seeds = [0]
    train: str = "train"
    dev: str = "dev"
    test: str | None = None
    limit: Count | None = None
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    data_seed: Seed = 0
    teacher: str = ""
    transfer: bool = False
    options: Options = {}
    fine_tune: Options = Field({}, alias="fine-tune")
    feature_extraction: Options = Field({}, alias="feature-extraction")

    def of_regime(self, regime: Regime) -> Options:
        """The options of one regime."""
        return self.options | (self.fine_tune if regime is Regime.FINE_TUNE else self.feature_extraction)


class Evaluate(Section):
    """Evaluations of the runs on one task on another one with the same labels, with options of ``probekit evaluate``.

    of : the task of the runs, such as mnli, which [[train]] must have
    """

    function: ClassVar[str] = "evaluate"
    task: str
    of: str
    split: str = "test"
    options: Given = {}


class Runs(Section):
    """A selection of fine-tuning runs.

    variants : names of sections [[train]] (default: all)
    run_seeds : their seeds (default: all)
    trained_on : "own" (the task of the analysis), "others" (the other tasks of [[train]]) or "all" (both)
    """

    variants: list[str] = []
    run_seeds: list[Seed] = []
    trained_on: Literal["own", "others", "all"] = "own"


class _Layers(Runs):
    """An analysis of each layer of pretrained models, of the fine-tuning runs of the task, or of random weights.

    models : some of the study's models and pretrained encoders (default: all); of an encoder, its first seed
    name : distinguishes sections that would otherwise be the same; part of file names
    of : "checkpoints" are those that save_at in the options of [[train]] lists
    poolings : over the pieces of a text (default: mean); for word tags "first" or "mean" over the pieces of each word
        (default: first)
    limit : train on only this many examples, drawn at random with data_seed; seeds : for random weights
    together : whether one step analyses all kinds of weights, with one verdict (default: a step for each)
    """

    function: ClassVar[str]
    tasks: list[str] = Field(min_length=1)
    name: str = ""
    models: list[str] = []
    of: list[Of] = Field(["pretrained"], min_length=1)
    poolings: list[Pooling] = []
    limit: Count | None = None
    data_seed: Seed = 0
    seeds: Seeds = [0]
    together: bool = False
    options: Given = {}


class Probe(_Layers):
    """Diagnostic classifiers on each layer, with options of ``probekit probe``.

    limit_dev : number of examples to evaluate on, drawn at random with data_seed
    """

    function = "probe"
    train: str = "train"
    dev: str = "dev"
    limit_dev: Count | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        return self.train, self.dev


class OfCaches(_Layers):
    """An analysis of each layer on one split, with the options of its command."""

    split: str = "train"

    @property
    def splits(self) -> tuple[str, ...]:
        return (self.split,)


class Compare(Section):
    """Paired differences between the probes of two kinds of weights, first minus second, by ``probekit compare``.

    tasks : default: all tasks that a section [[probe]] analyses with both
    """

    function: ClassVar[str] = "compare"
    of: tuple[Of, Of] = ("fine-tuned", "pretrained")
    tasks: list[str] = []
    name: str = ""
    options: Given = {}


class OfModels(Runs):
    """An analysis of the first kind of weights with each of the others, on the caches of [[probe]].

    tasks, models : default: all that a section [[probe]] analyses with all of these weights
    variants, run_seeds, trained_on : of the runs that the section [[probe]] analyses
    """

    function: ClassVar[str]
    of: list[Of] = Field(["pretrained", "fine-tuned"], min_length=1)
    tasks: list[str] = []
    models: list[str] = []
    name: str = ""
    options: Given = {}


class AcrossModels(OfModels):
    """The same for each model, or across models.

    across : "weights" compares the first kind of weights of each model with each of the others; "models" compares all
        models and kinds of weights in pairs
    of : default across models: pretrained
    """

    across: Literal["weights", "models"] = "weights"

    @model_validator(mode="before")
    @classmethod
    def _pretrained_models(cls, given: Any) -> Any:
        return {"of": ["pretrained"], **given} if isinstance(given, dict) and given.get("across") == "models" else given


class Tasks(Section):
    """Tasks that are analysed in the same way, on caches that they share where they can.

    Attributes
    ----------
    tasks : list[str]
        Names of tasks, or paths of task files.
    group : str
        What they are about: surface, syntax, semantics, discourse, world …; only tasks with a group are on the
        scoreboard.
    analysis : str, default "probe"
        The public function, of those that can stand in a suite (``Analysis.in_suites``). "shift" fits probes on each
        task of the section and evaluates them on all.
    train, dev : str, default "train" and "dev"
        Splits; a task without dev is evaluated on test.
    limit, limit_dev : int or None
        Examples of train and dev of each task, drawn at random (default: those of the file; without ``limit_dev`` in
        either, ``limit``). Of minimal pairs, pairs of each paradigm.
    options : Options, default {}
        Options of the function.
    """

    tasks: list[str] = Field(min_length=1)
    group: str = Field(min_length=1)
    analysis: OfTasks = "probe"
    train: str = "train"
    dev: str = "dev"
    limit: Count | None = None
    limit_dev: Count | None = None
    options: GivenInTasks = {}

    @property
    def function(self) -> str:
        return self.analysis


class Domains(Section):
    """Divergences between the domains of a task and named corpora, with options of ``probekit domains``."""

    function: ClassVar[str] = "domains"
    task: str
    split: str | None = None
    corpora: dict[str, str] = {}
    options: Given = {}


class Table(Section):
    """A table of all rows from ``probekit table KIND``; ``published`` is the name of published numbers to add."""

    function: ClassVar[str] = "table"
    kind: Kind
    name: str = ""
    published: str | None = None
    options: Given = {}


class Figure(Section):
    """A figure from ``probekit plot KIND``, of the rows of the sections named in ``rows``, one name or several.

    The default is the section with the name of the kind, if there is such a kind of section, otherwise probe.

    tasks : of the rows of analyses only those on these tasks (default: all)
    """

    function: ClassVar[str] = "plot"
    kind: str
    tasks: list[str] = []
    name: str = ""
    rows: RowsOf | Annotated[list[RowsOf], Field(min_length=1)] | None = None
    options: Given = {}


class Summary(Section):
    """A summary of the curves of all sections ``[[probe]]``, with options of ``probekit summary``."""

    function: ClassVar[str] = "summary"
    name: str = ""
    options: Given = {}


class _Study(Section):
    """A study, or a suite: a study of many tasks.

    Attributes
    ----------
    models : dict[str, str], default {}
        Hub ids or folders, by their name in tables.
    encoders : dict[str, Options], default {}
        Arguments of :func:`probekit.new_encoder` for the untrained encoders that ``[[pretrain]]`` trains, by name.
    data : dict[str, str], default {}
        Folders of task files below the data folder, if they differ from the name of the task.
    caches : Options, default {}
        Options of all caches, such as ``dtype`` and ``layers``.
    page : str, default "report.html"
        The file of the report.
    of : list of {"pretrained", "random"}
        The weights that sections ``[[tasks]]`` analyse; "random" is the control of the same architecture, with
        ``random_seed``.
    limit, limit_dev : int or None
        For ``[[tasks]]``: examples of train and dev of each task, drawn at random with ``data_seed`` (default: all, of
        dev as many as of train).
    against : str, optional
        A CSV file of a published leaderboard; see :func:`probekit.scoreboard`.
    include : list[str], default []
        Names of shipped suites whose tasks come first, with their own limits where these are lower.
    """

    name: str = ""
    title: str
    about: str = ""
    models: dict[str, str] = {}
    encoders: dict[str, Options] = {}
    data: dict[str, str] = {}
    caches: GivenInCaches = {}
    page: Annotated[str, AfterValidator(page_name)] = "report.html"
    of: list[Literal["pretrained", "random"]] = Field(["pretrained", "random"], min_length=1)
    random_seed: Seed = 0
    limit: Count | None = None
    limit_dev: Count | None = None
    data_seed: Seed = 0
    against: str | None = None
    include: list[str] = []
    pretrain: list[Pretrain] = []
    train: list[Train] = []
    evaluate: list[Evaluate] = []
    probe: list[Probe] = []
    compare: list[Compare] = []
    domains: list[Domains] = []
    tasks: list[Tasks] = []
    table: list[Table] = []
    figure: list[Figure] = []
    summary: list[Summary] = []

    @property
    def layered(self) -> list[Probe | OfCaches]:
        """The sections that analyse each layer of caches."""
        return [block for name in LAYERED for block in getattr(self, name)]

    @property
    def of_models(self) -> list[OfModels]:
        """The sections that compare the layers of models."""
        return [block for name in OF_MODELS for block in getattr(self, name)]

    @property
    def of_tasks(self) -> list[Tasks]:
        """The sections of tasks that share caches."""
        return [block for name in ("tasks", *OF_TASKS) for block in getattr(self, name)]


def _sections(kinds: Mapping[Reads, type[Section]]) -> dict[str, Any]:
    """The sections of the analyses that read these."""
    return {
        name: type(name.capitalize(), (kinds[one.reads],), {"function": name, "__doc__": f"{one.title}."})
        for name, one in analyses().items()
        if one.reads in kinds
    }


def _of_one(analysis: str) -> Any:
    """The sections of tasks for this analysis."""
    fields: dict[str, Any] = {"group": (str, ""), "analysis": (Literal[analysis], analysis)}
    return create_model(analysis.capitalize(), __base__=Tasks, **fields)


OF_CACHES = _sections(dict.fromkeys((Reads.CACHE, Reads.CACHES), OfCaches))
OF_MODELS = _sections({Reads.REFERENCE: OfModels, Reads.REFERENCE_PAIRS: OfModels, Reads.MODELS: AcrossModels})
LAYERED = ("probe", *OF_CACHES)
"""The sections that analyse each layer of caches."""
OF_TASKS = {name: _of_one(name) for name, one in analyses().items() if one.in_suites and name not in LAYERED}
"""The sections of tasks that share caches, for one analysis each."""
if TYPE_CHECKING:
    Study = _Study
else:
    more = {name: (list[kind], []) for name, kind in (OF_CACHES | OF_MODELS | OF_TASKS).items()}
    Study = create_model("Study", __base__=_Study, __doc__=_Study.__doc__, **more)
