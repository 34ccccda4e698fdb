"""Sequence to sequence: an LSTM that writes the target sentence from the encoder's states."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.attention import attend, maximum
from probekit.adaptation.heads.head import IGNORED, Head, States
from probekit.adaptation.heads.vocabulary import check_vocabulary, known_words, mean_loss
from probekit.errors import UsageError
from probekit.models.bilstm.lstm import LSTM
from probekit.models.elmo.lstm import Steps
from probekit.models.transformers.onednn import Repeated

Memory = tuple[Tensor, ...]
"""What attention reads: see :meth:`Attention.memory`."""


class DecoderHead(Head):
    """An LSTM decoder as in Bowman et al. (2018, section 4), trained with teacher forcing.

    A linear layer projects the maximum of the encoder's states over the sequence to the first hidden state and cell.
    The LSTM reads the embedding of the word before; its states are halved by a linear layer before the softmax.

    With attention, the LSTM also reads a mean of the encoder's states, concatenated to the embedding. Its weights are
    a softmax of s W [h; e], with the encoder's states s, the decoder's previous state h and the embedding e: the
    bilinear attention of jiant and of AllenNLP's ``SimpleSeq2Seq`` (jiant halves s for it).

    Differences from jiant: there the states are projected before the maximum, which becomes the hidden state (with
    attention: the cell), and the other one is 0.

    Attributes
    ----------
    outputs : int
        Size of the output vocabulary.
    begin, end : int
        Ids of the words that the decoder reads first and writes last; labels do not contain them.
    hidden_size : int, optional
        Size of the LSTM; as wide as the encoder's states by default.
    embedding_size : int, default 300
        Size of the embeddings of target words.
    attention : bool, default False
        Whether the decoder attends to the encoder's states.
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        begin: int,
        end: int,
        hidden_size: int | None = None,
        embedding_size: int = 300,
        attention: bool = False,
    ) -> None:
        super().__init__()
        check_vocabulary(outputs)
        if begin == end or not {begin, end} <= set(range(outputs)):
            raise UsageError(f"begin is {begin}, end is {end}; expected two ids from 0 to {outputs - 1}.")
        size = hidden_size or width
        self.outputs, self.begin, self.end = outputs, begin, end
        self.start = nn.Linear(width, 2 * size)
        self.embeddings = nn.Embedding(outputs, embedding_size)
        self.lstm = LSTM(embedding_size, size)
        self.projection = nn.Linear(size, max(1, size // 2))
        self.output = nn.Linear(self.projection.out_features, outputs)
        self.attention = Attention(width, embedding_size, size) if attention else None
        nn.init.xavier_uniform_(self.embeddings.weight)  # as in AllenNLP
        of_lstm = [*self.lstm.weights, *([self.attention.values.weight] if self.attention else [])]
        for weight in of_lstm:
            nn.init.uniform_(weight, -(size**-0.5), size**-0.5)

    def forward(self, states: States) -> Tensor:
        """h and c before the first step, (b, 2 hidden size)."""
        return self.start(maximum(states.hidden, states.mask))

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        """Mean cross-entropy of the target words and the ends of their sentences, in nats.

        Parameters
        ----------
        logits : Tensor
            The result of :meth:`forward`.
        labels : Tensor
            int64 (b, s), the ids of target words; ``IGNORED`` at padding. Rows without words are left out.
        """
        length = self._length(labels)
        rows = length.nonzero()[:, 0]
        labels, length = labels[rows], length[rows] + 1
        steps = Steps.of(length.cpu().numpy(), labels.device)
        order = rows[steps.order]
        place = torch.arange(labels.shape[1] + 1, device=labels.device)
        mask, last = place < length[:, None], place == length[:, None] - 1
        edge = labels.new_zeros(len(labels), 1)
        read = torch.cat([edge + self.begin, labels], 1)[mask][steps.forward]
        written = torch.cat([labels, edge], 1).masked_fill(last, self.end)[mask][steps.forward]
        h, c = (x.contiguous() for x in logits[order].chunk(2, -1))
        embedded = self.embeddings(read)
        if self.attention is None:
            hidden = self.lstm(embedded, steps.sizes, (h, c))
        else:
            memory = self.attention.memory(states.hidden[order], states.mask[order])
            hidden = self._attentive(self.attention, embedded, steps.sizes, h, c, memory)
        return mean_loss(self.projection(hidden), self.output, written)

    def count(self, labels: Tensor, states: States) -> int:
        """The number of predictions that the loss is the mean of: words and ends of sentences."""
        length = self._length(labels)
        return int((length + (length > 0)).sum())

    @torch.no_grad()
    def generate(self, states: States, longest: int) -> Tensor:
        """Greedy decoding: the most likely word at each step, until all sentences have ended.

        Returns
        -------
        Tensor
            int64 (b, at most ``longest``), ``IGNORED`` from the end of a sentence on.
        """
        h, c = self(states).chunk(2, -1)
        word = torch.full((len(h),), self.begin, device=h.device)
        ended, found = torch.zeros_like(word, dtype=torch.bool), [word[:, None][:, :0]]
        memory = None if self.attention is None else self.attention.memory(states.hidden, states.mask)
        while len(found) <= longest and not ended.all():
            embedded = self.embeddings(word)
            gates = self.lstm.input(embedded) + self.lstm.recurrent(h)
            if self.attention is not None and memory is not None:
                gates = gates + self.attention(h, embedded, memory)
            h, c = _step(gates, c)
            word = self.output(self.projection(h)).argmax(-1)
            ended = ended | (word == self.end)
            found.append(word.masked_fill(ended, IGNORED)[:, None])
        return torch.cat(found, 1)

    def _attentive(
        self, attention: Attention, embedded: Tensor, sizes: Sequence[int], h: Tensor, c: Tensor, memory: Memory
    ) -> Tensor:
        """The LSTM's states (t, size) with attention, in the order of the steps."""
        recurrent, states = Repeated(self.lstm.recurrent), [h[:0]]
        gates = recurrent.onto(self.lstm.input(embedded) + self.lstm.recurrent.bias)
        for gate, word in zip(gates.split(list(sizes)), embedded.split(list(sizes)), strict=True):
            h, c, memory = h[: len(gate)], c[: len(gate)], tuple(x[: len(gate)] for x in memory)
            h, c = _step(gate + recurrent(h) + attention(h, word, memory), c)
            states.append(h)
        return torch.cat(states)

    def _length(self, labels: Tensor) -> Tensor:
        """The number of words (b,) of each target."""
        known = known_words(labels, self.outputs)
        if bool((known[:, 1:] & ~known[:, :-1]).any()):
            raise UsageError(f"labels have {IGNORED} between words; expected padding on the right only.")
        if bool(((labels == self.begin) | (labels == self.end)).any()):
            raise UsageError(
                f"labels contain the ids {self.begin} or {self.end}, which begin and end sentences; leave them out, "
                "since the decoder adds them."
            )
        return known.sum(1)


class Attention(nn.Module):
    """Bilinear attention of decoder states and words over the encoder's states.

    Attributes
    ----------
    keys : Linear
        (size + embedding size, width), the transposed W of :class:`DecoderHead`.
    values : Linear
        (4 size, width), the LSTM's input weights of the mean of the encoder's states.
    """

    def __init__(self, width: int, embedding_size: int, size: int) -> None:
        super().__init__()
        self.keys = nn.Linear(width, size + embedding_size, bias=False)
        self.values = nn.Linear(width, 4 * size, bias=False)
        nn.init.xavier_uniform_(self.keys.weight)

    def memory(self, hidden: Tensor, mask: Tensor) -> Memory:
        """Keys (b, t, size + embedding size) and values (b, t, 4 size) of the encoder's states, and their mask."""
        rows, cells = hidden[mask], mask.flatten().nonzero()[:, 0]

        def padded(packed: Tensor) -> Tensor:
            empty = packed.new_zeros(mask.numel(), packed.shape[-1])
            return empty.index_copy(0, cells, packed).unflatten(0, tuple(mask.shape))

        return padded(self.keys(rows)), padded(self.values(rows)), mask

    def forward(self, h: Tensor, word: Tensor, memory: Memory) -> Tensor:
        """What the mean of the encoder's states adds to the gates, (b, 4 size)."""
        keys, values, mask = memory
        scores = torch.cat([h, word], -1)[:, None] @ keys.transpose(1, 2)
        return attend(scores, values, mask)[:, 0]


def _step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h and c after one step of the LSTM."""
    i, f, g, o = gates.chunk(4, -1)
    c = i.sigmoid() * g.tanh() + f.sigmoid() * c
    return o.sigmoid() * c.tanh(), c
