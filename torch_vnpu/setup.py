"""Build of the native core torch_vnpu._C with torch's own extension helper and ninja."""

import os
from glob import glob

# A broken install would load itself through torch's autoload and could never be rebuilt.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths


class Build(BuildExtension):
    """Keeps the objects in one folder, whatever command builds, so that ninja compiles only what changed."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = os.path.join("build", "native")
        os.makedirs(self.build_temp, exist_ok=True)


setup(
    ext_modules=[
        CppExtension(
            "torch_vnpu._C",
            sorted(glob("csrc/*/*.cpp")),
            include_dirs=[os.path.join(include_paths()[0], "kineto")],
            depends=sorted(glob("csrc/**/*.h", recursive=True)),
            extra_compile_args=[
                "-O2",
                "-g0",
                "-std=c++20",
                "-fvisibility=hidden",
                # Headers of dispatch stubs lay out their tables by what torch itself was compiled with.
                "-DHAVE_AVX2_CPU_DEFINITION",
                "-DHAVE_AVX512_CPU_DEFINITION",
                # The plugin of torch.profiler; its library is part of libtorch_cpu.
                "-DUSE_KINETO",
                "-DFMT_HEADER_ONLY=1",
            ],
        )
    ],
    cmdclass={"build_ext": Build},
)
