"""Gradient checkpointing keeps the generators' states of npu where no argument says on which device it works."""


def register_checkpoint() -> None:
    """Make npu the default, even where there is no device yet when it is first asked for."""
    from torch.utils.checkpoint import DefaultDeviceType

    DefaultDeviceType.set_device_type("npu")
