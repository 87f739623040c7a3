"""`kernel.ship(folder)`: what runs a kernel on a machine that has no tileworkbench."""

from tileworkbench.shipping.ship import Shipment, ship

__all__ = ["Shipment", "ship"]
