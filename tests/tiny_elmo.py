"""ELMo's published files, tiny and random: options.json, and weights.hdf5 in TensorFlow's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

LSTM = {"cell_clip": 3, "proj_clip": 3, "use_skip_connections": True, "n_layers": 2, "projection_dim": 6, "dim": 9}
CNN = {
    "embedding": {"dim": 3}, "filters": [[1, 4], [2, 5], [4, 3]], "n_highway": 2, "n_characters": 262,
    "max_characters_per_token": 50, "activation": "relu",
}  # fmt: skip


def tiny_elmo(folder: Path, seed: int = 0, lstm: dict[str, Any] | None = None, **cnn: Any) -> tuple[Path, Path]:
    """Write the two files into ``folder`` and return their paths; ``lstm`` and ``cnn`` override the options.

    Weights are drawn so wide that states reach their limits here and there.
    """
    options = {"lstm": LSTM | (lstm or {}), "char_cnn": CNN | cnn}
    rng = np.random.default_rng(seed)
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, shape in shapes(options).items():
            file[name] = rng.normal(0, 1 if name == "char_embed" else 0.5, shape).astype(np.float32)
    (folder / "options.json").write_text(json.dumps(options))
    return folder / "options.json", folder / "weights.hdf5"


def shapes(options: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of weights.hdf5 and their shapes."""
    lstm, cnn = options["lstm"], options["char_cnn"]
    n, p, total = lstm["dim"], lstm["projection_dim"], sum(count for _, count in cnn["filters"])
    out: dict[str, tuple[int, ...]] = {"char_embed": (261, cnn["embedding"]["dim"])}
    for i, (width, count) in enumerate(cnn["filters"]):
        out |= {f"CNN/W_cnn_{i}": (1, width, cnn["embedding"]["dim"], count), f"CNN/b_cnn_{i}": (count,)}
    for i in range(cnn["n_highway"]):
        for gate in ("transform", "carry"):
            out |= {f"CNN_high_{i}/W_{gate}": (total, total), f"CNN_high_{i}/b_{gate}": (total,)}
    out |= {"CNN_proj/W_proj": (total, p), "CNN_proj/b_proj": (p,)}
    for way in range(2):
        for i in range(lstm["n_layers"]):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            out |= {f"{cell}/W_0": (2 * p, 4 * n), f"{cell}/B": (4 * n,), f"{cell}/W_P_0": (n, p)}
    return out
