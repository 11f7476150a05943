"""What every vendor's cards have in common: the families, and which cards are known and lost.

`Inventory` is pure: the cards that answer go in, those that once did and no longer do come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Literal, get_args

import msgspec

from nodevitals.probe import Family, Readings

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
    """A card that has answered: its lasting identity, the vendor's present index, its slot, and
    what its maker asks for when it goes back.
    """

    uuid: str
    device: str
    slot: str
    serial: str = ""
    model: str = ""


class KnownCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card as remembered. `lost_at` is in seconds since the epoch, None while it answers;
    `withheld` says that it is there, but not for us; `state` is the vendor's word where not well.
    """

    card: Card
    lost_at: float | None = None
    withheld: bool = False
    state: str = ""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The cards known on a node; it lives in the state directory from run to run."""

    known: tuple[KnownCard, ...] = ()
    baseline: int = 0

    def seen(
        self,
        present: Iterable[Card],
        refused: AbstractSet[str],
        withheld: AbstractSet[str],
        forgotten: AbstractSet[str],
        states: Mapping[str, str],
        now: float,
    ) -> Inventory:
        """The inventory after a look that found these cards.

        A known card that is not among them is lost, until it is back, another answers in its
        slot, or it was forgotten: one that was sent back to its maker must not alert for ever.
        `refused` are slots whose card says that it is lost; one that was never known goes by its
        slot. `withheld` are slots of which nothing can be said.
        """
        cards = {card.uuid: card for card in present}
        slots = {card.slot for card in cards.values()}
        known = [KnownCard(card=card, state=states.get(card.uuid, "")) for card in cards.values()]
        gone = [one for one in self.known if one.card.uuid not in cards]
        for one in gone:
            card = one.card
            if card.slot in slots or card.uuid in forgotten:
                continue
            away = card.slot in withheld
            since = one.lost_at if away or one.lost_at is not None else now
            known.append(KnownCard(card=card, lost_at=since, withheld=away))
        remembered = {one.card.slot for one in known}
        for slot in refused - remembered - forgotten:
            known.append(KnownCard(card=Card(uuid=slot, device="", slot=slot), lost_at=now))
        retired = sum(one.card.uuid in forgotten for one in gone)
        return Inventory(
            known=tuple(sorted(known, key=lambda one: (one.card.slot, one.card.uuid))),
            baseline=max(len(cards), self.baseline - retired),
        )


def tell(inventory: Inventory, vendor: str, readings: Readings) -> None:
    """Expose the inventory, and note each card's state for the history. Who answers has its INFO
    from its probe.
    """
    here = [one for one in inventory.known if not one.withheld]
    readings.add(PRESENT, sum(one.lost_at is None for one in here), vendor)
    readings.add(BASELINE, inventory.baseline, vendor)
    for one in here:
        card = one.card
        labels = (vendor, card.device, card.uuid)
        readings.add(UP, one.lost_at is None, *labels)
        readings.add(LOST_TIMESTAMP, one.lost_at, *labels)
        if one.lost_at is not None:
            bus_id = card.slot.partition("/")[0]
            readings.add(INFO, 1, *labels, card.serial, bus_id, card.model, "", "", "")
        calm = one.state in ("", "none")
        state = "lost" if one.lost_at is not None else "ok" if calm else one.state
        serial = f", serial {card.serial}" if card.serial else ""
        readings.condition(card.uuid, state, f"{vendor} {card.device} at {card.slot}{serial}")
