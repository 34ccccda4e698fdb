"""How labels are sent: one declaration, for Python, the command line and study files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from probekit.errors import UsageError
from probekit.recipe import option

__all__ = ["Code", "CodeOptions"]


class Code(StrEnum):
    """How the labels are sent (Voita & Titov 2020, sections 2.2.1 and 2.2.2)."""

    ONLINE = "online"
    VARIATIONAL = "variational"


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """How the labels are sent, and what beside them.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    code: Code = option(Code.ONLINE, "online (what a probe learns as labels come in) or variational.")
    controls: int = option(3, "Shufflings of the labels to send beside them; of words, control tasks too.")
    penalties: tuple[float, ...] | None = option(
        None, "With commas: C of the online code's logistic regressions (inverse), which are mixed."
    )
    fractions: tuple[float, ...] | None = option(
        None, "With commas: where portions of the online code end, as shares of train; the last is 1."
    )
    orders: int = option(
        3,
        "Orders in which gold labels are sent, online code: the row is their mean; with two or more it has a 95 % "
        "interval, for new examples sent in new orders, and p, one-sided, against the code of the classes' shares.",
    )
    seed: int = option(0, "Of the order in which labels are sent, and of the controls.")

    def __post_init__(self) -> None:
        if self.controls < 0 or self.seed < 0:
            raise UsageError(f"controls and a seed are 0 or more, not {self.controls} and {self.seed}.")
        if self.orders < 1:
            raise UsageError(f"orders are 1 or more, not {self.orders}.")
        if self.code not in list(Code):
            raise UsageError(f"code is {' or '.join(Code)}, not {self.code!r}.")
        object.__setattr__(self, "code", Code(self.code))
        if self.penalties is not None and not all(0 < c < inf for c in self.penalties or (0,)):
            raise UsageError(f"penalties are positive numbers, not {self.penalties!r}.")
