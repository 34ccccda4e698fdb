"""Odd arguments of every public function: a result, or an error of probekit in a sentence; nothing else happens."""

from __future__ import annotations

import inspect
import itertools
import random
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import word_caches
from damage import try_reading
from structures import guarded

import probekit
from probekit.errors import ProbekitError
from probekit.functions import FUNCTIONS, SILENT, find
from probekit.monitors.alarm import Alarm

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("no_certificates", "reproduced_here")]


class Colour(Enum):
    RED = "red"


class Rude:
    """A stranger's object, which answers nothing."""

    def _no(self, *_: object) -> Any:
        raise RuntimeError("no")

    __repr__ = __str__ = __eq__ = __bool__ = __len__ = __iter__ = __getitem__ = __float__ = __index__ = _no  # type: ignore[assignment]
    __hash__ = object.__hash__


def itself() -> list[Any]:
    """A list within itself."""
    inner: list[Any] = []
    inner.append(inner)
    return inner


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(5000):
        found = [found]
    return found


ODD: dict[str, Callable[[], Any]] = {
    **{repr(value)[:30]: (lambda v=value: v) for value in (
        None, "", " ", "²", "\0\0\0", "a\0b", "x" * 5000, "\ud800", "-1", "nan", ",", "1,,2", "../../..", "~nobody/x",
        "{x}", "%s", "*", "(a+)+$", "[", "null", "http://127.0.0.1:9/x", "s3://127.0.0.1/x", "file:///nowhere/x",
        float("nan"), float("inf"), -float("inf"), 10**30, -(10**30), -1, 0, 1, 2**63, 0.5, -0.0, 1e308, 5e-324, 1j,
        True, False, b"x", b"", Colour.RED, Path("nowhere/x"), Path(), ..., int, len, (), [], {}, set(), {"a"},
        frozenset({1}), [None], [[]], {"a": 1}, {1: [2]}, ("", ""), range(3), range(10**12), slice(1), Decimal("NaN"),
    )},
    "10**5000": lambda: 10**5000,
    "rude": Rude,
    "itself": itself,
    "deep": deep,
    "endless": itertools.count,
    "generator": lambda: (i for i in range(3)),
    "error": lambda: ValueError("x"),
    "nan32": lambda: np.float32("nan"),
    "int64": lambda: np.int64(3),
    "bool_": lambda: np.bool_(True),
    "0-d": lambda: np.array(3),
    "no numbers": lambda: np.array([]),
    "zeros": lambda: np.zeros((2, 2)),
    "texts": lambda: np.array(["a", "b"]),
    "objects": lambda: np.array([None, "a", {}], dtype=object),
    "ragged": lambda: [[1, 2], [3]],
    "dates": lambda: np.array(["2020-01-01"], "datetime64[D]"),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "frame": lambda: pd.DataFrame({"a": [1]}),
    "series": lambda: pd.Series(["a", None]),
    "missing": lambda: pd.NA,
    "timestamp": lambda: pd.Timestamp("2020-01-01"),
    "class": lambda: Rude,
    "module": lambda: itertools,
}  # fmt: skip
"""By name what makes an odd value."""


@dataclass(frozen=True)
class Call:
    """Arguments with which a function has something in a moment, in the folder of files."""

    places: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    slow: bool = False
    """Whether it takes more than a moment: most odd values stand beside inputs that do not exist."""


CPU, QUICK = {"device": "cpu"}, {"resamples": 100}
FEW = {"layers": (0, 1), "controls": 0}
PAIR = ("train.h5", "dev.h5")
CALLS: dict[str, Call] = {
    "cache_activations": Call(("m", "t.toml", "train"), {"out": "new.h5", "limit": 4, **CPU}, slow=True),
    "certify": Call(("m",), {"texts": "a.txt", **CPU}, slow=True),
    "export": Call(("train.h5",), {"to": "npy", "out": "exported"}),
    "import_activations": Call(("given",), {"model": "m", "out": "i.h5", **CPU}),
    "prove_sites": Call(("m",), CPU, slow=True),
    "convert": Call(("skip-thoughts:thoughts",), {"out": "converted"}),
    "new_encoder": Call(("c.json",), {"out": "encoder", "tokenizer": "m"}),
    "probe": Call(PAIR, {**FEW, **QUICK, "folds": 2, "penalties": (1.0,)}),
    "apply": Call(("kept", "train.h5"), QUICK),
    "angles": Call(("kept", "kept"), {"layers": (1,), "draws": 19}),
    "recheck": Call(("kept", "dev.h5"), {"before": "train.h5", **QUICK, **CPU}),
    "explain": Call(("kept", "dev.h5"), {"draws": 19, "top": 2, **QUICK, **CPU}),
    "load_probe": Call(("kept",)),
    "load_alarm": Call(("alarm.json",)),
    "import_probe": Call(("coef.npz", "dev.h5"), {"layer": "1", **QUICK}),
    "monitor": Call(("kept", "a.txt"), CPU),
    "mi": Call(("train.h5",), {**FEW, "draws": 1}),
    "mdl": Call(("train.h5",), {**FEW, "orders": 1, "penalties": (1.0,)}),
    "structural": Call(("words.train.h5", "words.dev.h5"), {**FEW, "epochs": 1, **QUICK}),
    "edges": Call(("words.train.h5", "words.dev.h5"), {**FEW, "steps": 1, **QUICK}),
    "pairs": Call(("m", "pairs.jsonl"), {"limit": 4, **CPU}),
    "surprisal": Call(("m", "t.toml"), {"split": "train", **CPU}),
    "shift": Call(PAIR, {**FEW, **QUICK}),
    "directions": Call((*PAIR, "other.h5", "more.h5"), {"layers": (1,), "draws": 1, **QUICK}),
    "units": Call(PAIR, {"layers": (1,), "draws": 19, "splits": 3, "rankings": ("mean-difference",), **QUICK}),
    "places": Call(PAIR, {"task": "t.toml", **FEW, **QUICK}),
    "choices": Call(("m", "t.toml"), CPU),
    "similarity": Call(("other.h5", "more.h5"), {"layers": (1,), **QUICK}),
    "movement": Call(("other.h5", "more.h5"), {"layers": (1,), **QUICK}),
    "geometry": Call(("train.h5",), {"layers": (1,)}),
    "transferability": Call(("train.h5",), {"layers": (1,), "draws": 20}),
    "stream": Call(("m", "t.toml"), {"layers": (1,), "analysis": ("mass-mean",), "controls": 0, **QUICK, **CPU}, True),
    "compare": Call(("p.parquet",), QUICK),
    "scoreboard": Call(("p.parquet",), QUICK),
    "suite": Call(("suite.toml",), {"out": "suite", "model": ("m",)}, slow=True),
    "summary": Call(("p.parquet",), QUICK),
    "domains": Call(("a=a.txt", "b=b.txt"), {"document": "line", "draws": 19, **QUICK}),
    "train": Call(("t.toml", "m", "run2"), {"epochs": 1, "limit": 4, "seeds": 1, **CPU}, slow=True),
    "pretrain": Call(("a.txt", "run3"), {"config": "c.json", "tokenizer": "m", "context": 16, **CPU}, slow=True),
    "pretrain_encoder": Call(("m", "t.toml", "run4"), {"steps": 1, **CPU}, slow=True),
    "evaluate": Call(("run",), {"split": "dev", **CPU}, slow=True),
    "search": Call(("space.toml",), {"out": "found", "trials": 1, **CPU}, slow=True),
    "guidelines": Call(("run", "lora"), {"resamples": 1000}),
    "ensemble": Call(("run", "run"), QUICK),
    "merge": Call(("lora", "merged")),
    "average": Call(("run", "run"), {"out": "soup", **CPU}, slow=True),
    "table": Call(("regimes", "run/rows.parquet")),
    "plot": Call(("layers", "p.parquet")),
    "report": Call(("p.parquet",), {"out": "page.html"}, slow=True),
    "explore": Call(("train.h5",), {"layers": (1,)}),
    "study": Call(("study.toml",), {"out": "study"}, slow=True),
    "run": Call(("m", "t.toml"), {"out": "first", "quick": True, **CPU}, slow=True),
    "demo": Call((), {"caches": "demo", "figures": "demo-figures"}, slow=True),
    "check_task": Call(("t.toml",)),
    "clean": Call(("run",), {"yes": True}),
    "copy_cache": Call(("train.h5", "copied.h5")),
    "edge": Call((lambda: ARRAYS[0], lambda: ARRAYS[1]), {"threads": 1}),
    "glue_score": Call(("p.parquet",)),
    "inspect": Call(("train.h5",)),
    "js_divergence": Call(([0.5, 0.5], [0.1, 0.9])),
    "load_encoder": Call(("m",), CPU),
    "load_task": Call(("t.toml",)),
    "merge_streams": Call(("s.npz",)),
    "mutual_information": Call((lambda: ARRAYS[0], lambda: ARRAYS[1]), {"draws": 1}),
    "new_task": Call(("train.csv",), {"out": "new.toml"}),
    "read": Call(("p.parquet",)),
    "read_rows": Call(("p.parquet",)),
    "reproduce": Call(("p.parquet.json",), {"out": "again"}, slow=True),
    "results": Call(("run",)),
    "verify": Call(("train.h5",)),
    "write_rows": Call((lambda: probekit.read_rows("p.parquet"), "rows.parquet"), {"card": {}}),
    "write_tasks": Call((["grammar:sentiment"],), {"out": "tasks"}),
    "ActivationCache": Call(("train.h5",)),
    "LogisticPath": Call((), {"Cs": (1.0,), "max_iter": 10}),
    "RidgePath": Call((), {"alphas": (1.0,)}),
}
"""By its name how each is called."""
WITHOUT = {
    *("apply", "load_probe", "monitor", "choices", "convert", "glue_score", "import_activations", "pairs", "places"),
    *("angles", "import_probe", "recheck", "shift", "structural", "surprisal"),
}
"""Of these, calls without odd values end in a sentence: the folder of files has nothing for them."""
ARRAYS = (np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2)
MORE = {"mutual_information": ("draws", "seed", "grids", "folds", "unknown")}
"""Options that stand in no signature."""


def called(name: str) -> Callable[..., Any]:
    """What is called by this name; solvers are fitted, too."""
    if name in ("LogisticPath", "RidgePath"):
        return lambda **how: getattr(probekit, name)(**how).fit(*ARRAYS).predict(ARRAYS[0])
    return find(name) if name in FUNCTIONS else getattr(probekit, name)


def places_of(name: str) -> list[int | str]:
    """The arguments of a function: numbers for those that are given by place, or names."""
    function = getattr(probekit, name) if name in ("LogisticPath", "RidgePath") else called(name)
    known = inspect.signature(function).parameters.values()
    named = [p.name for p in known if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    given = list(range(len(CALLS[name].places)))
    first = [p.name for p in known if p.kind is p.POSITIONAL_OR_KEYWORD][: len(given)]
    return [*given, *(n for n in named if n not in first and n not in SILENT), *MORE.get(name, ())]


def cases(seed: int, each: int) -> list[tuple[str, int | str, str, bool]]:
    """For each function so many odd arguments; whether its inputs exist."""
    rng, found = random.Random(seed), []
    for name, call in CALLS.items():
        for _ in range(each if name != "demo" else 0):  # it reads nothing: each path that it takes is a whole demo
            exist = not call.slow or rng.random() < 0.02
            found.append((name, rng.choice(places_of(name)), rng.choice(list(ODD)), exist))
    return found


@pytest.fixture(scope="module")
def files(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the calls read."""
    folder = tmp_path_factory.mktemp("files")
    caches = word_caches(folder, tiny_bert, sizes={"train": 40, "dev": 24})
    word_caches(folder, tiny_bert, "sequence-labelling", name="words", sizes={"train": 40, "dev": 24})
    for path, name in zip(caches, PAIR, strict=True):
        path.rename(folder / name)
    shutil.copytree(tiny_bert, folder / "m")
    splits = "".join(f'{split} = "{split}.csv"\n' for split in ("train", "dev", "test"))
    (folder / "t.toml").write_text(f'text = "a"\nlabel = "b"\n[splits]\n{splits}')
    for noun, split in (("cat", "train"), ("dog", "dev"), ("bird", "test")):
        (folder / f"{split}.csv").write_text("a,b\n" + "".join(f"the {noun} {i},{'xy'[i % 2]}\n" for i in range(24)))
    pair = '{"sentence_good": "the cat sat", "sentence_bad": "the cat sees %d", "UID": "order"}\n'
    (folder / "pairs.jsonl").write_text("".join(pair % i for i in range(8)))
    for name in "ab":
        (folder / f"{name}.txt").write_text(f"the cat sees {name} .\n" * 40)
    (folder / "c.json").write_text('{"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1}')
    (folder / "space.toml").write_text(
        'task = "t.toml"\nmodel = "m"\ntrials = 1\nseeds = 1\n[space]\nepochs = [1]\nbatch_size = [8]\n'
    )
    (folder / "study.toml").write_text(
        'title = "T"\nmodels = { m = "m" }\n[[probe]]\ntasks = ["t.toml"]\nof = ["pretrained"]\n'
    )
    Alarm("max", 1.0, layer="1", probe="0").save(folder / "alarm.json")
    (folder / "suite.toml").write_text('title = "S"\n[[tasks]]\ngroup = "g"\ntasks = ["t.toml"]\n')
    with chdir(folder):
        for run, how in (("run", {}), ("lora", {"method": "lora"})):
            probekit.train("t.toml", "m", run, epochs=1, batch_size=8, device="cpu", **how)
        probekit.cache_activations("m", "t.toml", "train", out="other.h5", device="cpu").close()
        probekit.cache_activations("m", "t.toml", "train", out="more.h5", device="cpu", random_weights=0).close()
        probekit.stream("m", "t.toml", layers=(1,), analysis=("mass-mean",), state="s.npz", device="cpu")
        probekit.export("other.h5", to="npy", out="given")
        probekit.probe(*PAIR, **FEW, resamples=100, folds=2, penalties=(1.0,), out="p.parquet")
    return folder


def attempt(name: str, place: int | str, odd: str, *, exist: bool) -> str:
    """What comes of a call with an odd argument in this place: "read", "told", or what must not be."""
    call = CALLS[name]
    places = [one() if callable(one) else one for one in call.places]
    named = dict(call.named)
    if not exist:
        places = ["nowhere" for _ in places]
    if isinstance(place, int):
        places[place] = ODD[odd]()
    else:
        named[place] = ODD[odd]()
    with guarded() as happened, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = try_reading(lambda: called(name)(*places, **named), (ProbekitError, OSError), seconds=60)
    return f"happened: {happened}" if happened else outcome


def state(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def attack(chosen: list[tuple[str, int | str, str, bool]], files: Path, tmp_path: Path) -> Counter[str]:
    """What came of odd arguments; the first that ends otherwise than in a result or a sentence fails."""
    found, wrong, work = Counter[str](), {}, tmp_path / "work"
    before: dict[Path, tuple[int, int]] = {}
    for name, place, odd, exist in chosen:
        if not before:
            shutil.rmtree(work, ignore_errors=True)
            before = state(Path(shutil.copytree(files, work)))
        with chdir(work):
            outcome = attempt(name, place, odd, exist=exist)
        after = state(work)
        if not before.items() <= after.items():
            outcome = f"lost: {before.items() - after.items()}"
        before = before if before == after else {}
        found[outcome.partition(":")[0]] += 1
        if outcome not in ("read", "told"):
            wrong.setdefault(f"{name} {place} {outcome[:40]}", f"{name}({place}={odd}), exist={exist}: {outcome}")
    assert not wrong, f"{dict(found)}\n" + "\n".join(wrong.values())
    return found


def test_every_public_function_is_called():
    known = {name: getattr(probekit, name) for name in probekit.__all__}
    functions = {name for name, value in known.items() if callable(value) and not inspect.isclass(value)}
    assert set(CALLS) == functions | set(FUNCTIONS) | {"ActivationCache", "LogisticPath", "RidgePath"}


@pytest.mark.slow
def test_the_calls_have_a_result_but_for_these(files, tmp_path):
    told, quiet = set(), set(CALLS) - {"demo"}
    for name in sorted(quiet):
        work = Path(shutil.copytree(files, tmp_path / name))
        with chdir(work), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            places = [one() if callable(one) else one for one in CALLS[name].places]
            try:
                called(name)(*places, **CALLS[name].named)
            except (ProbekitError, OSError) as error:
                told.add(name)
                print(f"{name}: {error}")
    assert told == WITHOUT


@pytest.mark.slow
def test_thousands_of_odd_arguments(files, tmp_path, capsys):
    found = attack(cases(seed=1, each=50), files, tmp_path)
    assert sum(found.values()) >= 3000
    with capsys.disabled():
        print(dict(found))
