"""How a refresh may be valued, by name, and the least price. The curves behind them are in `pricing`."""

from typing import Final

SAMPLED: Final = "elapsed-sampled"
"""That of which rates are drawn."""
IN_TURN: Final = "round-robin"
"""That to which a refresh is worth the hours since the last one, whatever the source."""
VALUED: Final = ("recrawl", "waiting", "elapsed", SAMPLED, IN_TURN)
"""Policies by the hours since the last refresh."""
CHANCE, THOMPSON = "uniform", "thompson"
DRAWN: Final = (CHANCE, THOMPSON)
"""Policies of `drawing`, by step."""
POLICIES: Final = (*VALUED, *DRAWN)
LEAST_PRICE: Final = 1e-10
"""Below it refreshes cost nothing."""
