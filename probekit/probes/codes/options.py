"""Options of minimum description length: how labels are transmitted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from probekit.errors import UsageError
from probekit.recipe import as_typed, check_least, option

__all__ = ["Code", "CodeOptions"]


class Code(StrEnum):
    """The code that transmits the labels (Voita & Titov 2020, sections 2.2.1 and 2.2.2)."""

    ONLINE = "online"
    VARIATIONAL = "variational"


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """How the labels are transmitted, and which controls are transmitted beside them.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    code: Code = option(Code.ONLINE, "online (a probe learns as labels arrive) or variational.")
    controls: int = option(3, "Number of shuffled label sets to transmit as controls; for words, of control tasks too.")
    penalties: tuple[float, ...] | None = option(
        None, "C of the online code's logistic regressions (inverse), which are mixed; separated by commas."
    )
    fractions: tuple[float, ...] | None = option(
        None, "Ends of the portions of the online code, as shares of train, separated by commas; the last is 1."
    )
    orders: int = option(
        3,
        "Random orders in which the online code transmits the gold labels; the row is their mean. With two or more, it "
        "has a 95 % interval for new examples in new orders, and a one-sided p against the code that knows only the "
        "class frequencies.",
    )
    seed: int = option(0, "Seed of the order of the labels and of the controls.")

    def __post_init__(self) -> None:
        check_least(self, controls=0, seed=0, orders=1)
        if self.code not in list(Code):
            raise UsageError(f"code must be {' or '.join(Code)}, not {self.code!r}.")
        object.__setattr__(self, "code", Code(self.code))
        if self.penalties is not None and not all(0 < c < inf for c in self.penalties or (0,)):
            raise UsageError(f"penalties must be positive numbers, not {as_typed(self.penalties)}.")
