"""Any transformers AutoModel as an Encoder: the library's model code, every layer, no padding."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import tokenizers
import torch
import transformers
from torch import nn

from probekit.errors import ModelError, ProbekitError, UsageError, first_line
from probekit.models.adapted.record import adapted
from probekit.models.adapted.virtual import prompt_tokens, virtual_tokens
from probekit.models.encoder import Batch, Edit, Encoder, Shown, Sink, Text, Tokens, begin_states, edited
from probekit.models.find import resolve_model
from probekit.models.folder import configuration, quantisation
from probekit.models.options import LoadOptions, Packing
from probekit.models.sites.taps import Tap, install
from probekit.models.transformers.blocks import depth_of, find_blocks, find_final_norm, same
from probekit.models.transformers.fused import fuse
from probekit.models.transformers.onednn import onednn_available, prepack
from probekit.models.transformers.packed import (
    OFFSET_TYPES,
    PACKED,
    PACKED_TYPES,
    groups_of,
    positions_of,
    switches,
    uncompiled,
)
from probekit.models.transformers.past import change
from probekit.models.transformers.ranks import LOST, SAME, Ranks, in_words, join_ranks
from probekit.models.transformers.stock import load_described
from probekit.models.transformers.tokens import Tokenizer, load_tokenizer
from probekit.models.words import NO_LIMIT
from probekit.runtime import Dtype, torch_threads
from probekit.sites import RESID_PRE, RESIDUAL, Site, residual_stream

log = logging.getLogger(__name__)

TOLERANCE = {Dtype.FLOAT32: 1e-4, Dtype.FLOAT16: 5e-2, Dtype.BFLOAT16: 2e-1}
"""Relative error of a single vector above which the self-check rejects the fast path. Rounding gave 3e-6 for MiniLM and
3e-5 for wide random models in float32, 2e-2 in bfloat16; attention to another sequence, or a wrong position, gives
several tenths."""

_HEAP = (32 << 20) - (1 << 16)
"""After a block of this size is freed, glibc keeps smaller ones (activations of a batch) in its heap; otherwise it
returns each to the system and faults it in again, which takes a tenth of the running time. No effect without glibc."""


class HuggingFaceEncoder(Shown):
    """An Encoder (see :mod:`probekit.models.encoder`) around a transformers model; made by :func:`load_transformer`.

    Attributes
    ----------
    model : Any
        The transformers model.
    tokenizer : Tokenizer
        Texts to word pieces.
    folder : Path
        The model's folder.
    depth : int
        The number of blocks that it runs: L, or fewer if the weights of later ones were not read.
    final_norm : bool
        Whether a norm follows the last block.
    proofs : Proofs, optional
        What proves the sites that it reads, if these were chosen (see :mod:`probekit.models.sites.selection`).
    ranks : Ranks, optional
        The processes that hold the model together; None if this one holds it alone.
    slices : dict of Site to tuple of int
        The sites of which each process sees a slice, and the widths of the slices; they are handed out whole.
    """

    def __init__(
        self, model: Any, tokenizer: Tokenizer, folder: Path, *, name: str, spec: dict[str, Any], batch_tokens: int,
        ranks: Ranks | None = None,
    ) -> None:  # fmt: skip
        self.model, self.tokenizer, self.folder = model, tokenizer, folder
        self.name, self.batch_tokens = name, batch_tokens
        self.max_length = tokenizer.max_length
        self.mixed_lengths, self.stops = False, True
        self.device = next(model.parameters()).device
        self.depth = depth_of(model)
        self.last: int | None = None  # the last layer that it has, if later blocks were not read
        self.ranks, self.slices = ranks, dict[Site, tuple[int, ...]]()
        self._ends = True  # the last block returns layer L
        self.own_begins = 0  # the first of the model's own hidden states; RWKV and Mamba 2 leave out layer 0
        self._time_first = False  # the blocks read (pieces, sequences, width), as XLNet's do
        self.filled = False  # the blocks read padding after the text, up to a multiple of a window, as Longformer's do
        self._hook()
        self.width, self.final_norm = self._shape()
        self.sites = residual_stream(self.depth, final_norm=self.final_norm)
        self.widths = (self.width,) * len(self.sites)
        self.proofs: Any = None
        self._copied: frozenset[Site] = frozenset()
        self._taps: tuple[Mapping[Site, Tap], Sequence[nn.Module]] = ({}, ())
        self._handles: list[Any] = []
        self.spec = spec | {"layers": [*map(str, self.sites)], "width": self.width, "max_length": self.max_length}
        self.versions: dict[str, Any] = {
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        }

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """Word pieces of each text, as this model reads them; raises UsageError if an item is not a text."""
        return self.tokenizer(texts)

    def encode(self, batch: Batch, sink: Sink, edit: Edit | None = None, wanted: Collection[int] | None = None) -> None:
        """Run the model and call ``sink(i, hidden)`` for each site as soon as it is computed.

        ``hidden`` (t, width) is the model's tensor on the model's device: copy it if you keep it, and do not modify it.
        The tensor that ``edit`` returns replaces it; edits see the layers of the residual stream and the final norm.
        With ``wanted``, the numbers of the sites that the caller keeps, the model stops after the last of them.

        Raises
        ------
        UsageError
            If the batch has several lengths and the encoder is not ``mixed_lengths``, or an edit returns another shape,
            dtype or device.
        """
        self.run(self.inputs(batch), sink, edit, wanted)

    def run(
        self, inputs: Mapping[str, Any], sink: Sink, edit: Edit | None = None, wanted: Collection[int] | None = None
    ) -> Any:
        """:meth:`encode` for arguments of the model; returns what the model returns, or None if it was stopped."""
        wanted = self._had(wanted)
        left = None if wanted is None else set(wanted)
        place = {site: i for i, site in enumerate(self.sites)}
        layers = iter(residual_stream(self.depth, final_norm=self.final_norm))
        if self.ranks is not None:
            if edit is not None and self.ranks.leads:
                raise UsageError("an edit must be made by every process that holds a slice of the model.")
            sink = later = _Later(sink)

        def emit(site: Site, rows: torch.Tensor) -> None:
            if (i := place.get(site)) is not None:
                rows = rows.clone() if site in self._copied else rows
                if self.ranks is not None and site in self.slices:
                    rows = self.ranks.joined(rows, self.slices[site])
                sink(i, rows if rows.device == self.device else rows.to(self.device))  # of a model on several
                if left is not None:
                    left.discard(i)
                    if not left:
                        raise _Enough

        def pass_on(hidden: torch.Tensor) -> torch.Tensor:
            site = next(layers)
            rows = hidden.reshape(-1, hidden.shape[-1])
            new = edited(edit, site, rows)
            emit(site, new)
            if site.name == RESIDUAL and site.layer != self.depth:
                emit(Site(RESID_PRE, site.layer), new)
            return hidden if new is rows else new.view(hidden.shape)

        with torch.inference_mode(), self._tapped(pass_on, emit, wanted), in_words():
            try:
                output = self.model(**inputs)
                if self.final_norm or not self._ends:
                    pass_on(output.last_hidden_state)
            except _Enough:
                output = None
                self._sent()
        if self.ranks is not None:
            later.raise_error()
        return output

    def end_at(self, last: int, depth: int) -> None:
        """Be an encoder of ``depth`` blocks of which layers 0 … ``last`` alone can be had."""
        self.last, self.sites = last, residual_stream(depth, final_norm=self.final_norm)
        self.widths = (self.width,) * len(self.sites)
        self.spec["layers"] = [*map(str, self.sites)]

    def _had(self, wanted: Collection[int] | None) -> Collection[int] | None:
        """The wanted sites, by default all; raises UsageError for those of blocks that were not read."""
        if self.last is None:
            return wanted
        if wanted is not None and max(wanted, default=0) > self.last:
            raise UsageError(f"{self.name} was loaded up to layer {self.last}; load it without last.")
        return range(self.last + 1) if wanted is None else wanted

    def follow(self) -> dict[str, Any]:
        """Run each pass that process 0 asks for, until it sends another message, which is returned.

        Raises
        ------
        ModelError
            If process 0 has ended.
        """
        assert self.ranks is not None
        past: Any = None  # what this process has of the key-value cache of texts that are written
        while (message := self.ranks.heard(self.device))["what"] in ("run", "change"):
            if message["what"] == "change":
                change(past, self.device, room=message.get("room", 0), rows=message.get("rows"))
                continue
            if message["attention"] != self.model.config._attn_implementation:
                self.model.set_attn_implementation(message["attention"])
            if message["emits"]:
                self.run(message["inputs"], lambda i, rows: None, wanted=message["wanted"])
                continue
            more = {"past_key_values": past} if message["continues"] else {}
            with torch.inference_mode():
                past = getattr(self.model(**message["inputs"], **more), "past_key_values", None)
        return message

    @contextmanager
    def reading(self, sites: Sequence[Site], taps: Mapping[Site, Tap], blocks: Sequence[nn.Module]) -> Iterator[None]:
        """Emit ``sites`` instead of the residual stream; their widths are not set.

        Parameters
        ----------
        sites : sequence of Site
            The sites.
        taps : mapping of Site to Tap
            Where those are read that are not in the residual stream.
        blocks : sequence of nn.Module
            The module that is block 0, 1 …
        """
        before = self.sites, self._copied, self._taps
        self.sites, self._copied = tuple(sites), frozenset()
        self._install(taps, blocks)
        try:
            yield
        finally:
            self.sites, self._copied, taps_before = before
            self._install(*taps_before)

    def read_sites(
        self,
        sites: Mapping[Site, int],
        taps: Mapping[Site, Tap],
        blocks: Sequence[nn.Module],
        copied: frozenset[Site] = frozenset(),
    ) -> None:
        """Emit these sites from now on, instead of the residual stream.

        Parameters
        ----------
        sites : mapping of Site to int
            Their widths, in the order in which the model computes them.
        taps, blocks
            As in :meth:`reading`.
        copied : frozenset of Site
            Those that the model overwrites later in its forward pass; a copy is handed out.
        """
        self.sites, self.widths, self._copied = tuple(sites), tuple(sites.values()), copied
        self.spec["layers"] = [*map(str, self.sites)]
        self._install(taps, blocks)

    def _install(self, taps: Mapping[Site, Tap], blocks: Sequence[nn.Module]) -> None:
        """Hook the modules from which the encoder's sites are read, and no others."""
        for handle in self._handles:
            handle.remove()
        tap, self._taps = self._tap, (taps, blocks)

        def now() -> tuple[Callable[[Site, torch.Tensor], None], int] | None:
            return None if getattr(tap, "emit", None) is None else (tap.emit, tap.calls - 1)

        wanted = {site: taps[site] for site in self.sites if site in taps}
        self._handles = install(self.model, blocks, wanted, now)

    def own_hidden_states(self, batch: Batch) -> torch.Tensor:
        """The ``hidden_states`` that the model itself returns for a batch, on the CPU: (depth + 1, t, width).

        The last one is the last hidden state: layer L, or ``final_norm`` if there is one. Layer 0 is NaN if the model
        does not return it.
        """
        with torch.inference_mode():
            hidden_states = self.model(**self.inputs(batch), output_hidden_states=True).hidden_states
        if self.own_begins:
            hidden_states = [torch.full_like(hidden_states[0], torch.nan), *hidden_states[:-2], hidden_states[-1]]
        return torch.stack([hidden.reshape(-1, self.width).to("cpu") for hidden in hidden_states])

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """The model's arguments for a batch; raises UsageError for several lengths if it does not run packed."""
        inputs: dict[str, Any] = {}
        shape = (1, -1) if self.mixed_lengths else (len(batch.length), -1)
        if self.mixed_lengths:
            config = self.model.config
            padding_id = config.pad_token_id if config.model_type in OFFSET_TYPES else None
            inputs["position_ids"] = self._tensor(positions_of(batch.token_ids, batch.length, padding_id), shape)
            inputs["probekit_groups"] = groups_of(batch.length)
        elif (batch.length != batch.length[0]).any():
            raise UsageError(f"{self.name} reads sequences of one length at a time; the batch has several lengths.")
        if self.tokenizer.type_ids:
            inputs["token_type_ids"] = self._tensor(batch.type_ids, shape)
        return {"input_ids": self._tensor(batch.token_ids, shape)} | inputs

    def _tensor(self, array: np.ndarray, shape: tuple[int, int]) -> torch.Tensor:
        tensor = torch.from_numpy(array.astype(np.int64)).view(shape)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    @contextmanager
    def _tapped(
        self,
        pass_on: Callable[[torch.Tensor], torch.Tensor],
        emit: Callable[[Site, torch.Tensor], None] | None = None,
        wanted: Collection[int] | None = None,
    ) -> Iterator[None]:
        """Pass the blocks' inputs in this thread through ``pass_on``; other threads may run the model meanwhile."""
        self._tap.pass_on, self._tap.emit, self._tap.calls = pass_on, emit, 0
        self._tap.wanted = None if wanted is None else sorted(wanted)  # as the other processes are told
        try:
            yield
        finally:
            self._tap.pass_on = self._tap.emit = None

    def _hook(self) -> None:
        """Layer l is the input of block l + 1, with everything in between; the last one leaves the last block."""
        tap = self._tap = threading.local()
        extra = prompt_tokens(self.model)

        def pass_on(hidden: torch.Tensor) -> torch.Tensor:
            if self._time_first:
                new = tap.pass_on(text := hidden.transpose(0, 1))
                return hidden if new is text else new.transpose(0, 1)
            if self.filled:
                new = tap.pass_on(text := hidden[:, : tap.length])
                return hidden if new is text else torch.cat([new, hidden[:, tap.length :]], 1)
            text = hidden[:, extra:] if extra else hidden
            new = tap.pass_on(text)
            return hidden if new is text else torch.cat([hidden[:, :extra], new], 1) if extra else new

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
            if getattr(tap, "pass_on", None) is None:
                return None
            tap.calls += 1
            new = pass_on(args[0] if args else kwargs["hidden_states"])
            return ((new, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": new})

        def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            if getattr(tap, "pass_on", None) is None or tap.calls != self.depth or not self._ends:
                return None
            several = isinstance(output, tuple | list)
            if (new := pass_on(first := output[0] if several else output)) is first:
                return None
            return type(output)((new, *output[1:])) if several else new

        def begin(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tap.length = (args[0] if args else kwargs["input_ids"]).shape[1]

        self.model.register_forward_pre_hook(begin, with_kwargs=True)
        for block in find_blocks(self.model):
            block.register_forward_pre_hook(before, with_kwargs=True)
            block.register_forward_hook(after)
        if self.ranks is not None:
            self.model.register_forward_pre_hook(self._send, with_kwargs=True)
            self.model.register_forward_hook(self._sent)

    def _send(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before each pass, if this process leads: send its arguments to the others."""
        if self.ranks is not None and self.ranks.leads:
            if self.ranks.inside:  # an error has ended the last pass, for which the others still wait
                raise ModelError(LOST)
            emits, attention = getattr(self._tap, "emit", None) is not None, self.model.config._attn_implementation
            wanted = self._tap.wanted if emits else None
            own = {name: value for name, value in kwargs.items() if name != "past_key_values"}  # each has its part
            continues = kwargs.get("past_key_values") is not None
            self.ranks.tell("run", own, attention=attention, emits=emits, wanted=wanted, continues=continues)
            self.ranks.inside = True

    def _sent(self, *_: Any) -> None:
        """After each pass, also one that was stopped: the others are through, too."""
        if self.ranks is not None and self.ranks.leads:
            self.ranks.inside = False

    def _shape(self) -> tuple[int, bool]:
        """Width, and whether a norm follows the last block; found, and compared with the model, by a small run.

        The last hidden state is the last block's output, or comes out of a norm that reads it. Otherwise, the blocks
        that were found may only begin the model's blocks (XLM's attentions), and the last hidden state is layer L.

        Raises
        ------
        ModelError
            If there are not L + 1 layers of one shape, or they are not the hidden states that the model itself returns.
        """
        given: list[torch.Tensor] = []
        written: list[torch.Tensor] = []
        config, kind = self.model.config, type(self.model).__name__
        if not isinstance(vocabulary := getattr(config, "vocab_size", None), int):
            raise ModelError(f"{self.name}: config.json says no vocab_size; {kind} reads no word pieces.")
        batch = Batch(np.array([vocabulary // 2, vocabulary // 3]), np.zeros(2, np.uint8), np.array([2]))

        def record(hidden: torch.Tensor) -> torch.Tensor:
            given.append(hidden.clone())
            return hidden

        def run(**more: Any) -> Any:
            return self.model(**self.inputs(batch), **more)

        hooks = [block.register_forward_hook(lambda *x: written.append(x[-1])) for block in find_blocks(self.model)]
        try:
            with torch.inference_mode(), in_words():
                with self._tapped(record):
                    last = run().last_hidden_state
                for hook in hooks:
                    hook.remove()
                own = getattr(run(output_hidden_states=True), "hidden_states", None) or ()
        except Exception as error:
            raise_in_words(self.name, error)
        if last.shape[:2] == (1, 2) and {tuple(x.shape) for x in given} == {(2, 1, last.shape[-1])}:
            self._time_first, given = True, [x.transpose(0, 1) for x in given]
        elif last.shape[:2] == (1, 2) and all(x.ndim == 3 and x.shape[1] > 2 for x in given):
            self.filled, given = True, [x[:, :2] for x in given]
        if not given:
            raise ModelError(
                f"{self.name}: the code of {kind} runs its blocks without calling them as modules, so what they read "
                "cannot be seen; it is not supported. Give another model, such as a BERT."
            )
        shapes = {tuple(hidden.shape) for hidden in (*given, last)}
        if len(given) != self.depth + 1 or len(shapes) != 1 or last.shape[:2] != (1, 2):
            raise ModelError(
                f"{self.name}: expected {self.depth + 1} layers of one shape (sequences, pieces, width), got "
                f"{len(given)} with shapes {sorted(shapes)}; {kind} is not supported."
            )
        self.own_begins = self._begin_of(own, given)
        if same(given[-1], last):
            return last.shape[-1], False
        norm = find_final_norm(self.model, lambda: run().last_hidden_state)
        outputs = [output[0] if isinstance(output, tuple) else output for output in written[:-1]]
        pairs = zip(outputs, given[1:], strict=False)
        self._ends = (norm is not None and same(norm[1], given[-1])) or any(same(x[:, -2:], y) for x, y in pairs)
        return last.shape[-1], self._ends

    def _begin_of(self, own: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> int:
        """The layer that the model's own hidden states begin with, 0 or 1; raises ModelError if they are others."""
        if len(own) != self.depth + 1:
            return 0
        inner = [hidden[:, -2:].cpu() for hidden in own[:-1]]
        errors = [
            max(relative_error(layer.cpu(), hidden) for layer, hidden in zip(layers, inner, strict=False))
            for layers in (found, found[1:])
        ]
        if min(errors) > 1e-2:  # the same run but for rounding; another tensor is off by tenths
            raise ModelError(
                f"{self.name}: the layers that were found are not the hidden states that {type(self.model).__name__} "
                f"itself returns (they differ by {min(errors):.1e}); it is not supported."
            )
        return errors.index(min(errors))


def raise_in_words(name: str, error: Exception) -> NoReturn:
    """Raise ModelError for an error of a model's own code in its first passes, at loading; others as they are."""
    if isinstance(error, ProbekitError | MemoryError | torch.OutOfMemoryError):
        raise error
    raise ModelError(
        f"{name} cannot be read: its own code fails for a few word pieces without padding ({type(error).__name__}: "
        f"{first_line(error)})."
    ) from error


class _Enough(Exception):
    """All wanted sites are read, so the rest of the model need not run."""


class _Later:
    """A sink whose error is raised after the pass: in the middle of it, the other processes would wait for ever."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.error: Exception | None = None

    def __call__(self, i: int, rows: torch.Tensor) -> None:
        if self.error is None:
            try:
                self.sink(i, rows)
            except Exception as error:
                self.error = error

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error


def load_layers(model: str | Path, options: LoadOptions) -> HuggingFaceEncoder:
    """:func:`load_transformer`, of whose blocks only those are read that compute the layers up to ``last``.

    One block more is read, because a layer is what enters the next block. All are read of drawn and of quantised
    weights, of runs and adapters, of a decoder, for several processes, and where it does not work.
    """
    folder, last = resolve_model(model, options.revision), options.last
    whole = options.random_weights is not None or options.tp_plan is not None or options.decoder
    whole = whole or options.quantise is not None
    if last is None or whole or adapted(folder) is not None or quantisation(folder):
        return load_transformer(model, options)
    depth = getattr(configuration(folder), "num_hidden_layers", None)
    if isinstance(depth, int) and last + 1 < depth:
        try:
            encoder = load_transformer(model, options, blocks=last + 1)
            encoder.end_at(last, depth)
        except ModelError as error:
            log.info("%s is read with all of its blocks: %s", model, error)
        else:
            return encoder
    return load_transformer(model, options)


@torch_threads(1)
def load_transformer(model: str | Path, options: LoadOptions, *, blocks: int | None = None) -> HuggingFaceEncoder:
    """A model from transformers with its tokenizer, from a local folder or the hub; errors as in ``load_encoder``.

    With ``blocks``, only its first blocks are read, and it is an encoder of so many.
    """
    ranks = None if options.tp_plan is None else join_ranks(options.device)
    net, folder, spec = load_described(model, options, processes=1 if ranks is None else ranks.size, blocks=blocks)
    dtype, packing = Dtype(options.dtype), options.packing
    tokenizer, on_cpu = text_reader(folder, net.config, options.max_length), spec["device"] == "cpu"
    encoder = HuggingFaceEncoder(
        net,
        tokenizer,
        folder,
        name=spec["model"],
        spec=spec,
        batch_tokens=options.batch_tokens or (1024 if on_cpu else 16384),
        ranks=ranks,
    )
    if on_cpu:
        torch.empty(_HEAP, dtype=torch.uint8)
    checks = _check_batches(encoder)
    truth = _first_passes(encoder, checks)
    steps = []
    if ranks is not None:
        _check_whole(encoder, ranks, truth[-1])
    elif options.compile:
        for block in find_blocks(net):
            block.forward = torch.compile(block.forward, dynamic=True)
        steps.append("compiled")
        encoder.spec["compile"] = True
    elif options.onednn and on_cpu and onednn_available(net.dtype) and (method := prepack(net)):
        steps.append(method)
        try:
            all_layers(encoder, checks[-1])
        except (AttributeError, NotImplementedError, RuntimeError) as cause:
            log.info("%s reads weights that oneDNN packs; it is loaded without oneDNN (%s)", model, first_line(cause))
            encoder = load_transformer(model, replace(options, onednn=False), blocks=blocks)
            del encoder.spec["onednn"]  # it was not asked for
            return encoder
        if net.dtype is torch.float32 and fuse(net, lambda: all_layers(encoder, checks[0])):
            steps.append("fused")
    refusal = (
        "packing is 'grouped'"
        if packing is Packing.GROUPED
        else f"attention is {options.attention!r}"
        if options.attention is not None
        else _pack(encoder, checks, truth, TOLERANCE[dtype], uncompiled() if options.compile else PACKED)
    )
    if not refusal:
        encoder.spec["path"] = "+".join(["packed", *steps])
        return encoder
    if packing is Packing.PACKED:
        raise ModelError(f"{model} cannot run packed: {refusal}. Use packing='grouped'.")
    log.info("%s runs in groups of equal length: %s", model, refusal)
    encoder.spec["path"] = "+".join(["grouped", *steps])
    error = max(relative_error(all_layers(encoder, batch), right) for batch, right in zip(checks, truth, strict=True))
    if error > TOLERANCE[dtype]:
        raise ModelError(
            f"{model}: the prepared model ({', '.join(steps) or 'unchanged'}) has a relative error of {error:.1e} from "
            f"the model's own forward pass (allowed: {TOLERANCE[dtype]:.0e}); load it with onednn=False and without "
            "compile."
        )
    encoder.versions["self_check"] = error
    return encoder


def _first_passes(encoder: HuggingFaceEncoder, checks: Sequence[Batch]) -> list[torch.Tensor]:
    """All layers of each batch, by the model's own forward pass."""
    try:
        return [all_layers(encoder, batch) for batch in checks]
    except Exception as error:
        raise_in_words(encoder.name, error)


def all_layers(
    encoder: Encoder, batch: Batch, edit: Edit | None = None, wanted: Collection[int] | None = None
) -> torch.Tensor:
    """Every site of a batch on the CPU: (sites, t, width), narrower sites padded with 0; begins with an empty state.

    With ``wanted``, the sites with these numbers.
    """
    begin_states(encoder)
    layers: list[torch.Tensor] = []

    def keep(i: int, hidden: torch.Tensor) -> None:
        if wanted is None or i in wanted:
            layers.append(hidden.to("cpu", copy=True))

    more: Any = {"wanted": wanted} if wanted is not None and getattr(encoder, "stops", False) else {}
    encoder.encode(batch, keep, edit, **more)
    begin_states(encoder)
    width = max(encoder.widths if wanted is None else (encoder.widths[i] for i in wanted))
    return torch.stack([nn.functional.pad(hidden, (0, width - hidden.shape[-1])) for hidden in layers])


def prepare_packed(encoder: Any, check: Batch, *, onednn: bool) -> None:
    """Speed up a model that always runs packed (ELMo, Skip-thoughts); record its error from its own forward pass.

    Raises
    ------
    ModelError
        If the error on the sequences of ``check`` is too large.
    """
    net, dtype = encoder.model, Dtype(encoder.spec["dtype"])
    truth = encoder.own_hidden_states(check)
    fast = onednn and encoder.spec["device"] == "cpu" and onednn_available(net.dtype)
    encoder.spec["path"] = "+".join(filter(None, ["packed", prepack(net) if fast else ""]))
    encoder.versions["self_check"] = error = relative_error(all_layers(encoder, check), truth)
    if error > TOLERANCE[dtype]:
        raise ModelError(
            f"{encoder.name}: the prepared model ({encoder.spec['path']}) has a relative error of {error:.1e} from its "
            f"own forward pass (allowed: {TOLERANCE[dtype]:.0e}); load it with onednn=False."
        )


def relative_error(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest |found - right| / |right| over all vectors, (…, width) each.

    Vectors that are not finite in ``right`` are left out; one that is not finite only in ``found`` has infinite error.
    """
    found, right = found.double(), right.double()
    size = right.norm(dim=-1)
    error = (found - right).norm(dim=-1) / size.clamp_min(torch.finfo(torch.float32).tiny)
    return float(error[size.isfinite()].nan_to_num(float("inf")).max()) if bool(size.isfinite().any()) else 0.0


def _pack(
    encoder: HuggingFaceEncoder, checks: list[Batch], truth: list[torch.Tensor], tolerance: float, attention: str
) -> str:
    """Switch ``encoder`` to the packed path; if that fails, leave it unchanged and return the reason."""
    config = encoder.model.config
    if config.model_type not in PACKED_TYPES:
        return f"{config.model_type} models are not known to work in packed form"
    if virtual_tokens(config):
        return "virtual tokens belong to each sequence"
    if switches(config):
        return "the longest sequence of a batch changes the positions of all (rope_parameters in config.json)"
    stock = config._attn_implementation
    encoder.model.set_attn_implementation(attention)
    encoder.mixed_lengths = True
    together = Batch(*(np.concatenate([getattr(b, f) for b in checks]) for f in ("token_ids", "type_ids", "length")))
    try:
        error = relative_error(all_layers(encoder, together), right := torch.cat(truth, 1))
        if error <= tolerance:
            far = _beside_the_farthest(encoder, together)
            error = max(error, relative_error(far, right[:, : far.shape[1]]))
        error = error if encoder.ranks is None else encoder.ranks.largest(error)
        refusal = (
            f"relative error {error:.1e} from the model's own forward pass (allowed: {tolerance:.0e})"
            if error > tolerance
            else ""
        )
    except ModelError as error_of_model:
        refusal = str(error_of_model)
    if refusal:
        encoder.model.set_attn_implementation(stock)
        encoder.mixed_lengths = False
    else:
        encoder.versions["self_check"] = error
    return refusal


def _beside_the_farthest(encoder: HuggingFaceEncoder, together: Batch) -> torch.Tensor:
    """All layers of a packed batch but its last sequence, whose pieces stand at the last places that the model reads.

    What depends on the longest sequence of a row shows in the others, without the cost of a long one.
    """
    inputs, last = encoder.inputs(together), int(together.length[-1])
    inputs["position_ids"] = inputs["position_ids"].clone()
    inputs["position_ids"][0, -last:] += encoder.max_length - last
    layers: list[torch.Tensor] = []
    encoder.run(inputs, lambda _, hidden: layers.append(hidden[:-last].to("cpu", copy=True)))
    return torch.stack(layers)


def _check_whole(encoder: HuggingFaceEncoder, ranks: Ranks, layers: torch.Tensor) -> None:
    """Raise ModelError if the processes see different layers, (layers, t, width): slices, or terms of a sum."""
    for site, rows in zip(encoder.sites, layers, strict=True):
        if (error := ranks.different(rows)) > SAME:
            raise ModelError(
                f"{encoder.name}: the {ranks.size} processes see different rows of layer {site} (by {error:.1e}): its "
                "plan of tensor parallelism leaves slices or terms of a sum. Use --device-map auto."
            )


def _check_batches(encoder: HuggingFaceEncoder) -> list[Batch]:
    """A few random sequences, one per batch, shortest first, two of the same length."""
    rng = np.random.default_rng(0)
    vocabulary = encoder.model.config.vocab_size
    return [
        Batch(rng.integers(vocabulary, size=k), rng.integers(2, size=k).astype(np.uint8), np.array([k]))
        for k in sorted(min(k, encoder.max_length) for k in (1, 2, 5, 9, 9))
    ]


def text_reader(folder: Path, config: Any, max_length: int | None = None) -> Tokenizer:
    """The tokenizer of a model folder; it truncates at the model's maximum length (from ``config``) or ``max_length``.

    Raises
    ------
    UsageError
        If the model does not support ``max_length``.
    """
    reader = load_tokenizer(folder)
    longest, least = _max_length(config, reader), reader.num_special_tokens_to_add() + 1
    if longest < least:
        raise ModelError(
            f"{folder} reads at most {longest} pieces, but at least {least} are needed: max_position_embeddings in "
            f"config.json is {getattr(config, 'max_position_embeddings', None)}, model_max_length in "
            f"tokenizer_config.json is {reader.model_max_length}. Correct them."
        )
    if max_length is not None and not least <= max_length <= longest:
        raise UsageError(f"{folder} reads {least} to {longest} pieces, but max_length is {max_length}.")
    padding = getattr(config, "pad_token_id", None)
    return Tokenizer(
        reader.backend_tokenizer,
        max_length or longest,
        type_ids=(getattr(config, "type_vocab_size", 0) or 0) > 1,
        cut=reader.truncation_side,
        padding_id=(reader.pad_token_id or 0) if padding is None else padding,
        vocabulary=getattr(config, "vocab_size", None),
        name=str(folder),
    )


ENCODER_LIMIT = "max_encoder_position_embeddings"
"""LED's name for the length of the texts that its encoder reads; MPT says ``max_seq_len``."""


def _max_length(config: Any, tokenizer: Any) -> int:
    said = (getattr(config, name, None) for name in ("max_position_embeddings", "max_seq_len", ENCODER_LIMIT))
    limit = next((number for number in said if number), NO_LIMIT)
    limit = NO_LIMIT if limit == -1 else limit  # as XLNet says that it has none
    try:
        if config.model_type in OFFSET_TYPES:
            limit -= config.pad_token_id + 1
        limit -= virtual_tokens(config)
        return int(min(limit, tokenizer.model_max_length, NO_LIMIT))
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"the model's maximum length is not a number ({first_line(error)}); correct config.json or "
            "tokenizer_config.json."
        ) from error
