"""A wheel that carries hutch's binaries (src/hutch/_bin, which make package fills) is one for this machine; without them
it is for any."""

import os
import platform

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

BINARIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "src", "hutch", "_bin")


class Wheel(bdist_wheel):
    """The binaries are static: they ask for a kernel and for no C library."""

    def finalize_options(self):
        super().finalize_options()
        if os.path.isdir(BINARIES):
            self.root_is_pure = False

    def get_tag(self):
        if self.root_is_pure:
            return super().get_tag()
        machine = platform.machine()
        return "py3", "none", f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"


setup(cmdclass={"bdist_wheel": Wheel})
