"""Tasks that the steps of a run share."""

from probekit import load_task
from probekit.tasks import kept as kept_module
from probekit.tasks.kept import keeping_tasks
from probekit.tasks.union import Union

NAME, OTHER = "grammar:sentiment", "grammar:acceptability"


def test_a_task_is_loaded_once_per_run_and_process() -> None:
    with keeping_tasks("a run"):
        first = load_task(NAME)
    with keeping_tasks("a run"):
        assert load_task(NAME) is first
        both = load_task(f"{NAME}+{OTHER}")
        assert isinstance(both, Union)
        assert both.parts[0] is first
    assert load_task(NAME) is not first  # outside of runs
    with keeping_tasks("another run"):
        assert load_task(NAME) is not first
    with keeping_tasks("a run"):
        assert load_task(NAME) is not first  # files may have changed since


def test_those_loaded_last_are_kept(monkeypatch) -> None:
    monkeypatch.setattr(kept_module, "MOST", 1)
    with keeping_tasks("a small run"):
        first = load_task(NAME)
        assert load_task(NAME) is first  # one is kept, whatever its size
        load_task(OTHER)
        assert load_task(NAME) is not first
