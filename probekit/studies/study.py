"""Studies: from a file to all of its numbers, tables, figures and the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from probekit.files import write
from probekit.studies.file import Study
from probekit.studies.runner import Main, Outcome, Pool, open_study, run_steps, state_of
from probekit.studies.steps import Step

__all__ = ["flops_per_second", "run_study", "seconds_of"]

USED = 0.5
"""Of the speed of large products, what training and inference of transformers reach."""


def run_study(
    study: Study,
    steps: Sequence[Step],
    out: str | Path,
    main: Main,
    pool: Pool,
    *,
    begin: Callable[[Step], None] = lambda _: None,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Do what is missing of a study in its folder; see :func:`probekit.studies.runner.run_steps`.

    Leaves in ``study.json`` what the report says of it: title, what it is about, and all its steps, in their order.
    Raises UsageError where another process does.
    """
    out = Path(out)
    with open_study(out):
        named = [{"step": step.name} | ({"error": step.error} if step.error else {}) for step in steps]
        told = json.dumps({"title": study.title, "about": study.about, "steps": named}, indent=1, ensure_ascii=False)
        write(out / "study.json", told + "\n")
        return run_steps(steps, out, main, pool, begin=begin, tell=tell)


def seconds_of(steps: Sequence[Step], out: Path) -> dict[str, tuple[str, float]]:
    """By step what is to be done ("done", "again", "new") and how long it will take, roughly, one after another.

    What was done before takes as long as it did; the rest is told from its floating-point operations and the speed of
    this machine, within a factor of two or so.
    """
    speed, found = USED * flops_per_second(), {}
    for step, (state, _, took) in zip(steps, state_of(steps, out).values(), strict=True):
        found[step.name] = state, 0.0 if state == "done" else took or step.seconds + step.work / speed
    return found


def flops_per_second() -> float:
    """Floating-point operations a second of large float32 products here, as torch does them."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.randn(1024, 1024, device=device)
    times = []
    for _ in range(20):
        began = monotonic()
        (a @ a)[0, 0].item()
        times.append(monotonic() - began)
    return 2 * 1024**3 / min(times)  # other processes only ever slow it down
