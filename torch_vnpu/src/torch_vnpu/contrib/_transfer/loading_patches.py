"""`torch.load`: storages that were saved on CUDA, and a map_location that speaks of it."""

from collections.abc import Callable
from typing import Any

from torch import serialization

from torch_vnpu.contrib._transfer import ORIGIN, SWITCHED_ON, manager, translate
from torch_vnpu.contrib._transfer.redirect import redirected

_loading = manager.declare(
    id="map-location",
    group="loading",
    title="torch.load restores CUDA's storages on npu",
    reason="A checkpoint names the device of each storage, and so does map_location; either may say 'cuda'.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
)
_get_restore_location = serialization._get_restore_location
_loading.replace(
    "torch.serialization.default_restore_location",
    redirected(serialization.default_restore_location, "location", position=1),
)


@_loading.replace("torch.serialization._get_restore_location")
def get_restore_location(map_location: Any) -> Callable[[Any, str], Any]:
    # What is saved while CUDA is redirected says npu: a mapping for 'cuda:1' is meant for it too.
    if isinstance(map_location, dict):
        map_location = {translate.device(key): value for key, value in map_location.items()} | map_location
    return _get_restore_location(map_location)
