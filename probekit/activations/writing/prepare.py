"""The steps before a model runs: tokenize, plan, and create the file with everything known in advance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from probekit.activations.certify import quick_certificate
from probekit.activations.grouping import stored_groups
from probekit.activations.label_sets import stored_labels, strings
from probekit.activations.pooling import TokenLevel
from probekit.activations.positions import ROLES, Positions
from probekit.activations.writing.chosen import check_chosen, check_positions
from probekit.activations.writing.input import Input, as_read, read_texts, tokenised
from probekit.activations.writing.journal import Journal
from probekit.activations.writing.partial import Contents, Later, Partial, Stream, attributes, create
from probekit.activations.writing.pieces import OF_TOKENS, spilled
from probekit.activations.writing.plan import Plan, make_plan, plan_in_order, token_places
from probekit.activations.writing.request import Request
from probekit.activations.writing.written import continued
from probekit.errors import CacheMismatch, TruncationError
from probekit.models.encoder import Encoder
from probekit.runtime import Progress
from probekit.sites import Site, choose_all
from probekit.version import VERSION


def check_environment(partial: Partial, encoder: Encoder) -> None:
    """Refuse to continue a file that was begun in another environment; raises CacheMismatch."""
    now, then = environment(encoder), partial.spec["environment"]
    if now != then:
        raise CacheMismatch(
            f"{partial.file} was begun in another environment: {difference(then, now)}. "
            "Continue there, or start again with --overwrite."
        )


def environment(encoder: Encoder) -> dict[str, Any]:
    """All that affects the last bits of the numbers: the path through the model, versions of libraries."""
    facts, names = {**encoder.spec, **encoder.versions}, ("model", "checkpoint", "step", "revision")
    return {k: facts[k] for k in sorted(facts) if k not in (*names, "threads", "self_check")}


def difference(old: Mapping[str, Any], want: Mapping[str, Any]) -> str:
    """A description of the keys in which ``old`` differs from ``want``."""
    differs = [key for key, value in want.items() if old.get(key) != value]
    plain = [key for key in differs if not key.endswith("digest")]
    changes = [f"{NAMES.get(key, key)} is {old.get(key)!r} in the file and {want[key]!r} now" for key in plain]
    changes += [f"{NAMES.get(key, key)} have changed" for key in differs if not plain]
    return "; ".join(changes[:3]) or "its description differs"


NAMES = {
    "n": "the number of examples",
    "data_digest": "the data",
    "weights_digest": "the model's weights",
    "tokenizer_digest": "the tokenizer's files",
}
"""What a cache's description calls otherwise than people do."""


def prepare(request: Request, encoder: Encoder, journal: Journal, *, progress: Progress) -> None:
    """Create the partial file of a cache; raises TruncationError if texts are too long and may not be truncated.

    The pieces go to the disk as the texts are read, and from there into the file, block by block: beside the texts,
    memory holds some numbers for each of them, and the pieces of one block.
    """
    texts, known, text_of_slot = read_texts(request, progress)
    if known is not None:
        check_positions(Positions.parse(request.want.get("positions")), request.task.name, known)
    with spilled(tokenised(encoder, texts, progress), request.path) as pieces:
        cut = pieces.truncated[text_of_slot].reshape(-1, int(request.want["sentences"])).any(1)
        _check_cut(request, encoder, cut)
        written = None
        if "generate" in request.want:
            written = continued(request, encoder, texts, pieces, text_of_slot, progress)
        _create(
            Input(request.want, texts, pieces, known, written), request, encoder, journal, text_of_slot, cut, progress
        )


def _create(
    read: Input, request: Request, encoder: Encoder, journal: Journal, text_of_slot: np.ndarray, cut: np.ndarray,
    progress: Progress,
) -> None:  # fmt: skip
    """Plan the work, and create the file with everything that is known before the model runs."""
    want, task = request.want, request.task
    length, (rows, none) = read.length, read.sizes()
    if "positions" in want and not request.options.allow_nonfinite:
        without = none[text_of_slot].reshape(len(cut), -1).any(1)
        otherwise = "store NaN for them with --allow-nonfinite"
        check_chosen(want["positions"], task.name, request.part, without, cut, otherwise)
    plan = _plan(request, encoder, length, text_of_slot)
    start, token_start = token_places(rows := rows[plan.order], plan.blocks)
    static, links = _static(read, plan, stored_labels(task, as_read(request, read.known, text_of_slot)), start, rows)
    static["/pieces/blocks"] = np.array(
        [
            (b.first, b.last, b.slot_first, b.slot_last, t, u)
            for b, t, u in zip(plan.blocks, token_start, token_start[1:], strict=False)
        ],
        dtype=np.int64,
    )
    static["/truncated"] = cut
    if read.written is not None:
        static |= read.written.datasets(text_of_slot, encoder)
    readable = getattr(encoder, "readable", list)  # imported texts are numbers of pieces
    groups, grouping = stored_groups(readable(request.part.examples), task.kind, progress=progress)
    counts = {
        "sequences": len(text_of_slot),
        "unique": len(read.texts),
        "pieces": int(length.sum()),
        "truncated": int(cut.sum()),
        "empty": int(none[text_of_slot].sum()),
    }
    kept = [site for site, _ in kept_sites(want, encoder)]
    spec = _spec(request, encoder, counts) | {
        "certificate": request.certificate or quick_certificate(encoder, read.texts, kept),
        "links": links,
        "allow_nonfinite": request.options.allow_nonfinite,
    }
    contents = Contents(
        attributes=attributes(spec, request.spec_id, VERSION, {**request.about, "groups": grouping}),
        static=static | groups,
        filled=read.blocks(plan),
        links=links,
        streams=_streams(request, encoder, int(token_start[-1])),
        dtype=want["store"],
        blocks=plan.blocks,
        token_start=token_start,
    )
    create(request.path, journal, contents)


def _static(
    read: Input, plan: Plan, labels: Mapping[str, np.ndarray], start: np.ndarray, rows: np.ndarray
) -> tuple[dict[str, np.ndarray | Later], dict[str, str]]:
    """The datasets known in advance, and further names for some; those of pieces are filled block by block.

    Parameters
    ----------
    start, rows : np.ndarray
        int64 (s,), the first row of ``/tokens`` of each text in the order of the plan, and the number of its rows.
    """
    level, length = read.want["tokens"], read.length[plan.order].astype(np.int32)
    text = plan.row_to_unique.reshape(-1, int(read.want["sentences"]))
    text = text[:, 0] if text.shape[1] == 1 else text
    count = {"pieces": int(length.sum()), "index": int(rows.sum())}
    later = {name: Later((count[name.split("/")[1]],), dtype) for name, dtype in read.columns().items()}
    links = {}
    if level == TokenLevel.PIECE:
        links = {
            name.replace("pieces", "index"): name for name in later if name not in ("/pieces/flags", "/pieces/chosen")
        }
    tokens = {name: later.pop(name) for name in [*later] if name in OF_TOKENS}
    static: dict[str, np.ndarray | Later] = {"/pieces/length": length, **tokens, "/index/row_to_unique": text}
    if read.pieces.characters is not None:
        static["/pieces/characters"] = read.pieces.characters
    static |= {name: later.pop(name) for name in [*later] if name.startswith("/pieces/")}
    if "/pieces/role" in static:
        static["/role_names"] = strings(ROLES)
    static |= {**labels, **later}
    if level:
        static |= {"/index/start": start[text], "/index/length": rows[text]}
    return static, links


def _check_cut(request: Request, encoder: Encoder, cut: np.ndarray) -> None:
    """Refuse texts that are too long, ``cut`` (n,), if ``on_truncate`` is "error"."""
    if cut.any() and request.options.on_truncate == "error":
        first = request.part[int(np.argmax(cut))]
        raise TruncationError(
            f"{int(cut.sum())} of {len(cut)} examples are longer than the {encoder.max_length} pieces that "
            f"{encoder.name} reads; the first is {first.id!r}. Use --on-truncate keep to truncate them."
        )


def _plan(request: Request, encoder: Encoder, length: np.ndarray, text_of_slot: np.ndarray) -> Plan:
    """The order of the sequences, and their blocks."""
    itemsize = 4 if request.want["store"] == "float32" else 2
    slot_bytes = len(request.want["pooling"]) * sum(width for _, width in kept_sites(request.want, encoder)) * itemsize
    if request.stateful:
        return plan_in_order(length, int(request.want["sentences"]), request.stateful, slot_bytes)
    return make_plan(length, text_of_slot, slot_bytes)


def _streams(request: Request, encoder: Encoder, token_rows: int) -> list[Stream]:
    """The datasets for the model's vectors."""
    want, sites = request.want, kept_sites(request.want, encoder)
    shape = len(request.part), int(want["sentences"])
    streams = [
        Stream(f"/pooled/{p}/{site}", (shape[0], shape[1] * width), pooled=True)
        for p in want["pooling"]
        for site, width in sites
    ]
    if want["tokens"] and token_rows:
        streams += [Stream(f"/tokens/{site}", (token_rows, width), pooled=False) for site, width in sites]
    return streams


def kept_sites(want: Mapping[str, Any], encoder: Encoder) -> list[tuple[Site, int]]:
    """The sites to store and their widths, in the order of the model; by default all.

    Raises
    ------
    UsageError
        If the model has no such site.
    """
    chosen = set(choose_all(want.get("only"), encoder.sites, encoder.name))
    return [(site, width) for site, width in zip(encoder.sites, encoder.widths, strict=True) if site in chosen]


def _spec(request: Request, encoder: Encoder, counts: Mapping[str, int]) -> dict[str, Any]:
    """The spec of a cache, as far as it is known before the model runs."""
    task, sites = request.task, kept_sites(request.want, encoder)
    widths = [width for _, width in sites]
    return {
        **request.want,
        "spec_id": request.spec_id,
        "layers": [str(site) for site, _ in sites],
        "width": max(widths),
        **({"widths": list(widths)} if len(set(widths)) > 1 else {}),
        "counts": dict(counts),
        "metrics": list(task.metrics),
        "source": task.source,
        "licence": task.licence,
        "reads_at_most": encoder.max_length,
        "environment": environment(encoder),
    }
