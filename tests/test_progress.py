"""What public functions show while they work: progress of long work, and notes on their data once."""

import io
import logging
import sys
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest

import probekit
from probekit.functions import FUNCTIONS
from probekit.notes import collected, each_time, is_new, logger
from probekit.probes.protocol.label_sets import label_sets
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.progress import display
from probekit.public import public
from probekit.rows import Result, make_rows
from probekit.runtime import Progress, no_progress, part_of, progress_lines
from probekit.threads import working_threads


@public(saves=False)
def slow(n: int = 3, *, progress: Progress = no_progress) -> Result:
    """A function with progress, which calls another one, and says something of its data."""
    logger("probekit.tests").warning("%d texts are empty.", n)
    progress("layers", 1, 4)
    if n:
        slow(n - 1)
    progress("layers", 2, 4)
    return Result(make_rows([]))


@public(saves=False)
def asked(data: str) -> Result:
    """A function whose note does not name its data: dev has a label that train lacks."""
    question = Question("classification", ("accuracy",), ("a", "b", "c"))
    label_sets(np.arange(8) % 2, np.arange(3), question, ProbeOptions(folds=2, controls=0))
    return Result(make_rows([]))


def test_a_function_shows_its_own_progress_and_only_long_work(monkeypatch, capsys):
    """By default, once and not of what it calls; not if it is short, or told not to; a function gets all of it."""
    monkeypatch.delenv("PROBEKIT_PROGRESS")
    monkeypatch.setitem(FUNCTIONS, "slow", __name__)
    monkeypatch.setattr("probekit.progress.SHORT", 1e9)
    slow()
    slow(progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("probekit.progress.SHORT", 1e-9)
    slow(1)
    assert capsys.readouterr().err.splitlines() == ["layers: 1 of 4 (25 %)"]
    monkeypatch.setenv("PROBEKIT_PROGRESS", "0")
    slow(1)
    slow(1, progress=lambda *told: print(*told))
    assert capsys.readouterr() == ("layers 1 4\nlayers 2 4\n", "")
    assert "False for none" in probekit.probe.__doc__


def test_the_parts_of_long_work_count_as_one(capsys):
    now, out = [0.0], io.StringIO()
    show = progress_lines(out, lambda: now[0], tip=lambda left: "faster" * ((left or 0) > 60))
    for curve in range(4):
        for layer in range(1, 8):
            now[0] += 20.0
            part_of(show, curve, 4)("layers", layer, 7)
    told = out.getvalue().splitlines()
    assert told[7] == "layers: 8 of 28 (29 %), 7 min left, faster"
    assert told[-1] == "layers: 28 of 28 (100 %)"


def test_a_note_is_shown_once_and_stays_in_each_result(monkeypatch, caplog):
    monkeypatch.setitem(FUNCTIONS, "slow", __name__)
    monkeypatch.setattr("probekit.notes._each_time", 0)
    monkeypatch.setattr("probekit.notes._shown", set())
    found = [slow(1), slow(1)]
    assert caplog.messages == ["1 texts are empty.", "0 texts are empty."]
    assert found[1].notes == found[0].notes == ("1 texts are empty.", "0 texts are empty.")
    with each_time():
        slow(0)
    assert len(caplog.messages) == 3


@pytest.mark.parametrize("stream", [None, SimpleNamespace(write=len, flush=bool)], ids=["none", "a logger"])
def test_a_service_without_a_terminal_works(stream, monkeypatch):
    monkeypatch.delenv("PROBEKIT_PROGRESS", raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with display() as progress:
        progress("probe", 1, 2)


def test_the_environment_silences_the_command_line_too(monkeypatch):
    monkeypatch.setenv("PROBEKIT_PROGRESS", "0")
    with display() as progress:
        assert progress is no_progress


def test_a_terminal_shows_names_of_strangers_as_they_are(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.delenv("PROBEKIT_PROGRESS", raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    with display() as progress:
        progress("counting [/bold]", 1, 2)
    assert "counting [/bold]" in screen.getvalue()


def test_the_same_note_on_other_data_is_another_one(monkeypatch, caplog):
    """Also after a study in this process, whose note only a log has taken; the level hides it, and loses none."""
    monkeypatch.setitem(FUNCTIONS, "asked", __name__)
    monkeypatch.setattr("probekit.notes._each_time", 0)
    notes = [asked(data).notes for data in ("a.h5", "b.h5", "a.h5")]
    assert caplog.messages == [*notes[0], *notes[1]]
    assert len(set(notes)) == len(notes[0]) == 1
    with each_time():
        asked("c.h5")
    asked("c.h5")
    assert len(caplog.messages) == 4
    with each_time():
        asked("d.h5")
    assert is_new(caplog.records[-1])  # as a screen asks
    asked("d.h5")
    assert len(caplog.messages) == 5
    caplog.set_level(logging.ERROR, "probekit")
    assert asked("e.h5").notes == notes[0]
    assert len(caplog.messages) == 5


def test_notes_are_those_of_the_thread_that_gives_the_work():
    def say():
        logger("probekit.tests").warning("mine")

    with collected() as notes:
        thread = Thread(target=say)
        thread.start()
        thread.join()
        with working_threads(1) as pool:
            pool.submit(say).result()
    assert notes == ["mine"]
