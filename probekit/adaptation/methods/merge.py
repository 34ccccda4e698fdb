"""``probekit merge``: a whole model from a run that holds only changed weights."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.library import bare_layout, library_layout
from probekit.adaptation.heads.spec import HeadSpec
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.runs.folder import ROWS, save_folder
from probekit.constraint import File, MadeOut
from probekit.errors import UsageError
from probekit.files import read_json
from probekit.models.adapted.composing import is_adapter
from probekit.models.adapted.loading import load_adapted
from probekit.models.adapted.record import MERGEABLE, adapted
from probekit.models.transformers.stock import load_model
from probekit.public import public
from probekit.rows.examples import EXAMPLES


@public()
def merge(run: File, /, out: MadeOut, *, base: str | Path | None = None) -> Path:
    """Add the changed weights of a run to its base, and write the whole model.

    Parameters
    ----------
    run : path
        A run of ``probekit train --method`` lora, dora, ia3, bitfit, norms or last, or one of its checkpoints.
    out : path
        The folder to write: a run that needs no base, which transformers and every command read as a model.
    base : path or str, optional
        Where the base is now, if it was moved: a folder or a hub id.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    UsageError
        If the run holds a whole model, its method or a quantised base cannot be merged, or ``out`` exists.
    ModelError
        If the run is damaged or unfinished, or the base is missing or has changed.

    Examples
    --------
    >>> probekit.merge("runs/cola-lora", "models/cola")  # doctest: +SKIP

    On the command line::

        probekit merge runs/cola-lora --out models/cola
    """
    folder, place = Path(run), Path(out)
    changes = adapted(folder)
    if is_adapter(folder) or (changes is not None and changes.adapters):
        raise UsageError(f"{folder} is an adapter of peft; every command reads it on its base as it is.")
    if changes is None:
        raise UsageError(f"{folder} is not a run with changed weights alone; there is nothing to merge.")
    if changes.method not in MERGEABLE:
        raise UsageError(
            f"{folder}: {changes.method} adds modules that cannot be merged with the base; use the run as it is."
        )
    if place.exists():
        raise UsageError(f"{place} exists; give another --out.")
    if changes.quantise is not None:
        raise UsageError(
            f"the base of {folder} has {changes.quantise} weights, and merging would round its changes; train without "
            "--quantise, or use the run as it is."
        )
    encoder = load_adapted(changes, load_model, base=base).requires_grad_(requires_grad=True)
    learner, card = load_learner(folder, encoder=encoder)
    head, task = HeadSpec.of_card(card), TaskSpec.of_card(card)
    layout = library_layout(encoder, head, task, mixed=learner.mix is not None) or bare_layout(
        encoder, task, "encoder." if read_json(folder / "config.json").get("is_encoder_decoder") else ""
    )
    kept = {key: value for key, value in card.items() if key not in ("adapted", "base", "digests")}
    more = {"prefix": layout.prefix, "merged": str(folder.resolve())}
    created = {"created": datetime.now(UTC).isoformat(timespec="seconds")}
    save_folder(place, learner.saved_state(), kept | more | created, folder, layout)
    for file in (*folder.glob(ROWS), *folder.glob(f"*{EXAMPLES}")):
        shutil.copyfile(file, place / file.name)
    return place
