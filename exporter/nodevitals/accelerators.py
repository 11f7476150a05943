"""What every vendor's cards have in common: the families, and which cards are known and lost.

`Inventory` is pure: the cards that answer go in, those that once did and no longer do come out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from nodevitals.model import Family, Readings

Action = Literal[
    "none", "investigate", "restart_app", "reset_device", "drain", "reboot_node", "replace"
]
ACTIONS: tuple[Action, ...] = get_args(Action)
DEVICE_LABELS = ("vendor", "device", "uuid")
ECC_KINDS = ("corrected", "uncorrected")
ECC_LIFETIMES = ("volatile", "aggregate")
ECC_LOCATIONS = (
    "all",
    "sram",
    "dram",
    "hbm",
    "ddr",
    "l1_cache",
    "l2_cache",
    "register_file",
    "texture_memory",
    "shared_memory",
    "cbu",
)

PRESENT = Family(
    name="nodevitals_accelerators_present",
    kind="gauge",
    help="Accelerators that answer.",
    labels=("vendor",),
)
EXPECTED = Family(
    name="nodevitals_accelerators_expected",
    kind="gauge",
    help="Accelerators that the configuration expects.",
    labels=("vendor",),
)
BASELINE = Family(
    name="nodevitals_accelerators_baseline",
    kind="gauge",
    help="The most accelerators that ever answered on this node, less those that were forgotten.",
    labels=("vendor",),
)
INFO = Family(
    name="nodevitals_accelerator_info",
    kind="gauge",
    help="Always 1; which accelerator it is.",
    labels=(
        *DEVICE_LABELS,
        "serial",
        "pci_bus_id",
        "model",
        "driver_version",
        "firmware_version",
        "vdie_id",
    ),
)
UP = Family(
    name="nodevitals_accelerator_up",
    kind="gauge",
    help="Whether an accelerator that is known on this node answers.",
    labels=DEVICE_LABELS,
)
LOST_TIMESTAMP = Family(
    name="nodevitals_accelerator_lost_timestamp_seconds",
    kind="gauge",
    help="When a known accelerator was first found not to answer; missing while it does.",
    labels=DEVICE_LABELS,
)
HEALTHY = Family(
    name="nodevitals_accelerator_healthy",
    kind="gauge",
    help="Whether the vendor's own verdict is OK; missing where the vendor has none.",
    labels=DEVICE_LABELS,
)
ECC_ERRORS = Family(
    name="nodevitals_accelerator_ecc_errors_total",
    kind="counter",
    help="Memory errors as the device counts them: since the driver was loaded, or in its life.",
    labels=(*DEVICE_LABELS, "kind", "lifetime", "location"),
    closed={"kind": ECC_KINDS, "lifetime": ECC_LIFETIMES, "location": ECC_LOCATIONS},
)
UTILIZATION = Family(
    name="nodevitals_accelerator_utilization_ratio",
    kind="gauge",
    help="Share of the vendor's last sampling period in which the device was busy.",
    labels=DEVICE_LABELS,
)
MEMORY_USED = Family(
    name="nodevitals_accelerator_memory_used_bytes",
    kind="gauge",
    help="Device memory in use.",
    labels=DEVICE_LABELS,
)
MEMORY_TOTAL = Family(
    name="nodevitals_accelerator_memory_total_bytes",
    kind="gauge",
    help="Device memory.",
    labels=DEVICE_LABELS,
)
TEMPERATURE = Family(
    name="nodevitals_accelerator_temperature_celsius",
    kind="gauge",
    help="Temperature of the chip.",
    labels=DEVICE_LABELS,
)
POWER = Family(
    name="nodevitals_accelerator_power_watts",
    kind="gauge",
    help="Power that the device draws.",
    labels=DEVICE_LABELS,
)
PROCESSES = Family(
    name="nodevitals_accelerator_processes",
    kind="gauge",
    help="Processes that compute on the device.",
    labels=DEVICE_LABELS,
)

INVENTORY_FAMILIES = (PRESENT, EXPECTED, BASELINE, INFO, UP, LOST_TIMESTAMP)


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A card that has answered: its lasting identity, the vendor's present index, its slot."""

    uuid: str
    device: str
    slot: str


class KnownCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card as remembered. `lost_at` is in seconds since the epoch; None while it answers."""

    card: Card
    lost_at: float | None = None


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The cards known on a node; it lives in the state directory from run to run."""

    known: tuple[KnownCard, ...] = ()
    baseline: int = 0

    def seen(self, present: Iterable[Card], forgotten: frozenset[str], now: float) -> Inventory:
        """The inventory after a look that found these.

        A card that is not among them is lost, until it is back, another answers in its slot, or
        it was forgotten: a card that was sent back must not alert for ever.
        """
        cards = {card.uuid: card for card in present}
        slots = {card.slot for card in cards.values()}
        gone = [known for known in self.known if known.card.uuid not in cards]
        kept = [
            KnownCard(card=known.card, lost_at=now if known.lost_at is None else known.lost_at)
            for known in gone
            if known.card.slot not in slots and known.card.uuid not in forgotten
        ]
        retired = sum(known.card.uuid in forgotten for known in gone)
        known = sorted(
            [*(KnownCard(card=card) for card in cards.values()), *kept],
            key=lambda one: (one.card.slot, one.card.uuid),
        )
        return Inventory(
            known=tuple(known), baseline=max(len(cards), len(kept), self.baseline - retired)
        )

    def lost(self) -> list[KnownCard]:
        """The cards that no longer answer."""
        return [known for known in self.known if known.lost_at is not None]


def tell(inventory: Inventory, vendor: str, expected: int | None, readings: Readings) -> None:
    """Expose the inventory, and note each card's state for the history."""
    readings.add(PRESENT, len(inventory.known) - len(inventory.lost()), vendor)
    readings.add(EXPECTED, expected, vendor)
    readings.add(BASELINE, inventory.baseline, vendor)
    for known in inventory.known:
        card = known.card
        readings.add(UP, known.lost_at is None, vendor, card.device, card.uuid)
        readings.add(LOST_TIMESTAMP, known.lost_at, vendor, card.device, card.uuid)
        state = "ok" if known.lost_at is None else "lost"
        readings.condition(card.uuid, state, f"{vendor} {card.device} at {card.slot}")
