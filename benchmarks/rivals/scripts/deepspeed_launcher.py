"""DeepSpeed's own launcher, which sees a card of the budget's size.

The tuner derives the largest micro batch from the card's memory and has no option for less of it: on a card
larger than the budget it would search where nothing fits.
"""

from __future__ import annotations

import os

CARD_BYTES = "RIVALS_CARD_BYTES"


def main() -> None:
    """`deepspeed` with the arguments given; the card is as large as the environment says."""
    from deepspeed.accelerator import get_accelerator
    from deepspeed.launcher.runner import main as launch

    card_bytes = int(os.environ[CARD_BYTES])
    kind = type(get_accelerator())
    kind.total_memory = lambda self, device_index=None: card_bytes
    launch()


if __name__ == "__main__":
    main()
