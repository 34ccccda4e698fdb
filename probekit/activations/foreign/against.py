"""Whether activations of another program are what they are said to be: a sample of them is recomputed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.foreign.opening import open_source
from probekit.activations.foreign.source import Array, Source
from probekit.activations.foreign.verdicts import Finding, decide, together
from probekit.errors import UsageError
from probekit.models.conversion import reads_apart
from probekit.models.encoder import Batch, Encoder
from probekit.runtime import Dtype, torch_threads
from probekit.sites import Site, layer_list

if TYPE_CHECKING:
    from probekit.activations.foreign.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arrays of another program beside recomputed ones.

    Attributes
    ----------
    model : str
        The model.
    spec : dict
        How it was loaded.
    path : str
        The file or folder.
    format : str
        Its format: vllm, arrays or saelens.
    texts, pieces : int
        The sample.
    of : int
        The number of texts in the file.
    findings : tuple of Finding
        One for each array.
    skipped : tuple of str
        Arrays whose names stand for no site.
    """

    model: str
    spec: dict[str, Any]
    path: str
    format: str
    texts: int
    pieces: int
    of: int
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether all arrays are what they are said to be."""
        return all(finding.passed for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One sentence."""
        counts = Counter(kind for finding in self.findings for kind in finding.kinds)
        if self.passed:
            return f"all {len(self.findings)} arrays are the same" if self.findings[1:] else "the array is the same"
        return ", ".join(f"{count} of {len(self.findings)} {kind}" for kind, count in counts.most_common())

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        findings = [asdict(f) | {"passed": f.passed} for f in self.findings]
        findings = [{k: None if v != v else v for k, v in f.items()} for f in findings]  # nan is no JSON
        return asdict(self) | {"findings": findings, "passed": self.passed, "verdict": self.verdict}

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)


def said_layers(layers: Sequence[str] | str | None) -> list[Site] | None:
    """``--layers``: the sites of the arrays of a file that does not name them; a number is how many blocks were passed.

    Raises
    ------
    UsageError
        If one is not a site.
    """
    return None if layers is None else [Site.parse(layer) for layer in layer_list(layers)]


@torch_threads(1)
def compare(encoder: Encoder, source: Source | str | Path, limit: int = 8) -> Comparison:
    """Recompute a sample of the texts in a file, and say of each array what it is.

    Parameters
    ----------
    encoder : HuggingFaceEncoder
        The model that the activations are said to be of.
    source : Source, str or Path
        The activations: a file or folder, or what ``open_source`` returns for it.
    limit : int, default 8
        How many texts to recompute, evenly spaced in the file.

    Raises
    ------
    DataError
        If the file is in none of the formats.
    UsageError
        If the model is no transformer, or a text is longer than it reads.
    """
    from probekit.activations.foreign.evidence import collect
    from probekit.models.sites.proof import prove
    from probekit.models.transformers.encoder import TOLERANCE, HuggingFaceEncoder

    source = source if isinstance(source, Source) else open_source(source)
    if reads_apart(encoder.spec.get("model_type", "")) or not isinstance(encoder, HuggingFaceEncoder):
        raise UsageError(f"{encoder.name} is no transformer; only activations of transformers are compared.")
    chosen = sorted({int(i) for i in np.linspace(0, len(source) - 1, min(limit, len(source))).round()})
    batches = {i: batch for i in chosen if len((batch := batch_of(encoder, source, i)).token_ids)}
    if not batches:
        raise UsageError(f"{source.path}: none of the {len(chosen)} texts has a piece.")
    found: dict[int, Evidence] = {k: {} for k in range(len(source.arrays))}
    unknown = _unknown(encoder, batches)
    if not unknown:
        proofs = encoder.proofs or prove(encoder)
        for i, batch in batches.items():
            collect(encoder, proofs, source, batch, i, found)
    ours = TOLERANCE[Dtype(encoder.spec["dtype"])]
    findings = [
        decide(
            array,
            found[k],
            len(batches),
            max(ours, TOLERANCE[Dtype(array.dtype)] if array.dtype != "float64" else ours),
            encoder.depth,
        )
        for k, array in enumerate(source.arrays)
    ]
    findings = [_with_width(f, a, encoder, min(batches)) for f, a in zip(findings, source.arrays, strict=True)]
    findings = [replace(f, verdict=f"other model: {unknown}") for f in findings] if unknown else together(findings)
    pieces = sum(len(batch.token_ids) for batch in batches.values())
    return Comparison(
        encoder.name, dict(encoder.spec), str(source.path), source.format, len(batches), pieces, len(source),
        tuple(findings), source.skipped,
    )  # fmt: skip


def _with_width(finding: Finding, array: Array, encoder: Any, text: int) -> Finding:
    """The finding on an array that is of no site, with the width of its vectors if this is why."""
    width, known = array.views[0].rows(text).shape[-1], encoder.widths[0]
    if finding.kinds != ("other model",) or finding.correlation == finding.correlation or width == known:
        return finding
    return replace(finding, verdict=f"{finding.verdict}; its vectors have {width:,} numbers, the layers {known:,}")


def _unknown(encoder: Any, batches: Mapping[int, Batch]) -> str:
    """The first piece that the model does not have, in words; "" if it has all."""
    size = encoder.model.config.vocab_size
    for i, batch in batches.items():
        if (worst := int(batch.token_ids.max())) >= size:
            return f"text {i} has the piece {worst}, and {encoder.name} has {size:,} pieces"
    return ""


def batch_of(encoder: Any, source: Source, i: int) -> Batch:
    """Text i as the model reads it; raises UsageError if it is too long."""
    if source.texts:
        tokens = encoder.tokenize([source.texts[i]])
        return Batch(tokens.token_ids, tokens.type_ids, tokens.length)
    ids = source.pieces(i)
    if len(ids) > encoder.max_length:
        raise UsageError(
            f"{source.path}: text {i} has {len(ids)} pieces, but {encoder.name} reads at most {encoder.max_length}."
        )
    return Batch(ids, np.zeros(len(ids), np.uint8), np.array([len(ids)]))
