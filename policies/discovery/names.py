"""How a refresh may be valued, by name, and the least price. The curves behind them are in `pricing`."""

from typing import Final

SAMPLED: Final = "elapsed-sampled"
"""That of which rates are drawn."""
IN_TURN: Final = "round-robin"
"""That to which a refresh is worth the hours since the last one, whatever the source."""
VALUED: Final = ("recrawl", "waiting", "elapsed", SAMPLED, IN_TURN)
"""Policies by the hours since the last refresh."""
CHANCE, THOMPSON, PHAM = "uniform", "thompson", "pham"
DRAWN: Final = (CHANCE, THOMPSON, PHAM)
"""Policies of `drawing` and `regressed`, by step."""
UNPRICED: Final = (IN_TURN, CHANCE, PHAM)
"""Those whose refreshes have no price in links, or not all of them."""
OWN_STATE: Final = (THOMPSON, PHAM)
"""Those that keep sums of their own, and no lifetimes."""
POLICIES: Final = (*VALUED, *DRAWN)
LEAST_PRICE: Final = 1e-10
"""Below it refreshes cost nothing."""
