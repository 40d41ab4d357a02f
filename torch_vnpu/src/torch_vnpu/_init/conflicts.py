"""Stage 1: may this backend be the process's accelerator? Every check comes before the native library is loaded, since
nothing that the library registers can be taken back.
"""

import torch

DEVICE_NAME = "npu"
_UNNAMED = "privateuseone"
_BUILT_FOR = "2.13"
_OTHER_ACCELERATORS = ("cuda", "xpu", "mps", "mtia", "hpu")


def check_device_conflicts() -> None:
    """Refuse to load beside another accelerator or into another torch.

    Raises:
        RuntimeError: another PrivateUse1 backend or another accelerator is there, or torch is not the version that the
            native library was compiled for. torch stays usable.
    """
    version = torch.__version__
    if not (version == _BUILT_FOR or version.startswith(_BUILT_FOR + ".")):
        raise RuntimeError(
            f"torch_vnpu was built for torch {_BUILT_FOR}, but torch {version} is installed: "
            f"install torch=={_BUILT_FOR}.0, or rebuild torch_vnpu"
        )
    name = torch._C._get_privateuse1_backend_name()
    if name not in (_UNNAMED, DEVICE_NAME):
        raise RuntimeError(
            f"torch_vnpu cannot register the device '{DEVICE_NAME}': another backend has registered the device "
            f"'{name}', and torch has room for one. Uninstall one of the two, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and "
            "import the one you want"
        )
    if name == DEVICE_NAME or hasattr(torch, DEVICE_NAME):
        raise RuntimeError(
            f"torch_vnpu cannot register the device '{DEVICE_NAME}': another package has registered a device of that name "
            "(torch_npu, perhaps). Uninstall one of the two, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want"
        )
    for other in _OTHER_ACCELERATORS:
        module = getattr(torch, other, None)
        if module is not None and hasattr(module, "is_available") and module.is_available():
            raise RuntimeError(
                f"torch_vnpu cannot register the device '{DEVICE_NAME}': the accelerator '{other}' is available, and torch "
                f"works with one accelerator. Hide '{other}' (such as by CUDA_VISIBLE_DEVICES=), or set "
                "TORCH_DEVICE_BACKEND_AUTOLOAD=0 so that torch_vnpu is not loaded"
            )
