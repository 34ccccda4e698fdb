"""The BiLSTM encoder with torch.nn.LSTM, and no code of the package."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence


class Plain(nn.Module):
    """The same network with torch.nn.LSTM on packed sequences."""

    def __init__(self, vocabulary, width, cells, layers, *, separate, skip):
        super().__init__()
        self.skip, self.separate = skip, separate
        self.embeddings = nn.Embedding(vocabulary, width)
        if separate:
            self.lstms = nn.ModuleList([nn.LSTM(width, cells, layers, batch_first=True) for _ in range(2)])
        else:
            self.lstm = nn.LSTM(width, cells, layers, batch_first=True, bidirectional=True)

    def forward(self, sequences):
        """(pieces, width) of all sequences, concatenated."""
        vectors = [self.embeddings(ids) for ids in sequences]
        if self.separate:
            ways = []
            for lstm, turn in zip(self.lstms, (lambda x: x, lambda x: x.flip(0)), strict=True):
                out = unpacked(lstm(pack_sequence([turn(x) for x in vectors], enforce_sorted=False))[0])
                ways.append([turn(x) for x in out])
            states = [torch.cat(pair, -1) for pair in zip(*ways, strict=True)]
        else:
            states = unpacked(self.lstm(pack_sequence(vectors, enforce_sorted=False))[0])
        return torch.cat([torch.cat([s, x], -1) if self.skip else s for s, x in zip(states, vectors, strict=True)])

    def take(self, model):
        """Copy the weights of a BiLSTMModel."""
        with torch.no_grad():
            self.embeddings.weight.copy_(model.embeddings.weight)
            for i, layer in enumerate(model.layers):
                for back, (one, end) in enumerate(((layer.forward_lstm, ""), (layer.backward_lstm, "_reverse"))):
                    there = self.lstms[back] if self.separate else self.lstm
                    end = "" if self.separate else end
                    for kind, linear in (("ih", one.input), ("hh", one.recurrent)):
                        getattr(there, f"weight_{kind}_l{i}{end}").copy_(linear.weight)
                        getattr(there, f"bias_{kind}_l{i}{end}").copy_(linear.bias)


def unpacked(packed):
    padded, length = pad_packed_sequence(packed, batch_first=True)
    return [x[:n] for x, n in zip(padded, length, strict=True)]
