"""The largest error of each site's identities, for tiny random models of all families, as a table in Markdown.

    python benchmarks/site_errors.py                      float64, float32, bfloat16: a few minutes
    python benchmarks/site_errors.py --dtype float64 --family llama gemma2

An identity such as resid_pre + attn_out_post = resid_mid connects a site with the residual stream; see docs/sites.md.
A dash means that the family has no such site. Sites that are refused although they were found would be listed below.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from probekit.models import load_encoder
from probekit.models.sites.proof import Proof, prove
from probekit.sites import NAMES

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import tiny


def proofs(family: str, folder: Path, dtype: str) -> list[Proof]:
    """The proofs of a tiny model; float64 is set after loading, since encoders do not offer it."""
    encoder: Any = load_encoder(folder, dtype=dtype if dtype != "float64" else "float32", onednn=dtype != "float64")
    if dtype == "float64":
        encoder.model.double()
        encoder.model.set_experts_implementation("eager")
    return [*prove(encoder).proofs.values()]


def row(found: list[Proof]) -> list[str]:
    """The largest error of each site over the blocks."""
    errors = {
        name: [proof.error for proof in found if proof.site.name == name and proof.error is not None] for name in NAMES
    }
    return [shown(max(of)) if of else "–" for of in errors.values()]


def shown(error: float) -> str:
    return "0" if error == 0 else f"{error:.0e}".replace("e-0", "e-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", nargs="+", default=["float64", "float32", "bfloat16"])
    parser.add_argument("--family", nargs="+", default=[*tiny.FAMILIES, *tiny.MORE])
    given = parser.parse_args()
    refused = []
    with tempfile.TemporaryDirectory() as scratch:
        folders = {family: tiny.tiny_model(family, Path(scratch) / family) for family in given.family}
        for dtype in given.dtype:
            print(f"\n{dtype}\n\n| family | {' | '.join(f'`{name}`' for name in NAMES)} |")
            print("|---" * (len(NAMES) + 1) + "|")
            for family, folder in folders.items():
                found = proofs(family, folder, dtype)
                print(f"| {family} | {' | '.join(row(found))} |", flush=True)
                refused += [(family, dtype, p.name, p.refusal) for p in found if p.refusal and not p.lacking]
    for what in refused:
        print("refused:", *what)


if __name__ == "__main__":
    main()
