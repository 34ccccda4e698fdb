"""How often ``probekit certify --against`` names the mistake that was made, as a table in Markdown.

    python benchmarks/foreign_verdicts.py                 20 models of each family: a few minutes
    python benchmarks/foreign_verdicts.py --models 2

Files hold sites of tiny random models, read with hooks from transformers' own model in float32 or bfloat16.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from probekit.activations.foreign.against import compare

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "activations" / "foreign"))
import tiny
from others import Stock, proven, write_safetensors

NORMED = {"gpt2": "final_norm", "gemma2": "final_norm", "bert": "mlp_sum.2"}
MISTAKES: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "same": lambda s, _: {f"layer_{k}": s[k] for k in "123"},
    "shifted": lambda s, _: {f"layer_{k}": s[str(int(k) - 1)] for k in "123"},
    "swapped axes": lambda s, _: {f"layer_{k}": torch.stack(s[k]).transpose(0, 1) for k in "123"},
    "prefix missing": lambda s, _: {f"layer_{k}": [x[4:] for x in s[k]] for k in "123"},
    "overwritten": lambda s, _: {"layer_1": s["3"], "layer_2": s["3"]},
    "another norm": lambda s, family: {"layer_3": s[NORMED[family]]},
    "slice": lambda s, _: {f"layer_{k}": [x[:, 8:16] for x in s[k]] for k in "123"},
}


def verdicts(family: str, seed: int, dtype: torch.dtype, scratch: Path) -> Counter[tuple[str, str]]:
    """(mistake, verdict) for every array."""
    folder = tiny.tiny_model(family, scratch / f"{family}-{seed}", seed=seed)
    other = tiny.tiny_model(family, scratch / f"{family}-{seed}-other", seed=1000 + seed)
    encoder = proven(folder)
    stock, others = (Stock(family, of, seed=seed, dtype=dtype) for of in (folder, other))
    files = {name: (stock, make(stock, family)) for name, make in MISTAKES.items()}
    files["other model"] = others, MISTAKES["same"](others, family)
    found: Counter[tuple[str, str]] = Counter()
    for mistake, (of, arrays) in files.items():
        path = write_safetensors(scratch / "a.safetensors", of.ids, arrays)
        found.update((mistake, " + ".join(finding.kinds)) for finding in compare(encoder, path))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=20, help="models of each family")
    given = parser.parse_args()
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    counts: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        for name, dtype in names.items():
            for family in NORMED:
                for seed in range(given.models):
                    counts[name] += verdicts(family, seed, dtype, Path(scratch) / name)
    print(f"| Mistake | {' | '.join(names)} |\n|---|---|---|")
    for mistake in [*MISTAKES, "other model"]:
        print(f"| {mistake} | {' | '.join(shown(counts[name], mistake) for name in names)} |")


def shown(counts: Counter[tuple[str, str]], mistake: str) -> str:
    """How many arrays have the right verdict, and which others have what."""
    of = {verdict: n for (made, verdict), n in counts.items() if made == mistake}
    wrong = "; ".join(f"{n} {verdict}" for verdict, n in of.items() if verdict != mistake)
    return f"{of.get(mistake, 0)} of {sum(of.values())}" + (f" ({wrong})" if wrong else "")


if __name__ == "__main__":
    main()
