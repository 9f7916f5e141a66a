# SPDX-License-Identifier: MIT
"""Runs when Python starts with the parcel's folder `start` in PYTHONPATH, there named sitecustomize.py. Child processes inherit it.

It adds the parcel's packages behind those of the machine, so that the machine's torch, transformers and numpy are used and the
parcel fills what is missing. Modules that vLLM imports and that these benchmarks never call have stand-ins: their names exist,
and a use raises an error. A sitecustomize of the machine runs after this one.
"""
import importlib.abc
import importlib.machinery
import pathlib
import sys

STAND_INS = ("llguidance", "xgrammar")


def _make(module, name):
    def refuse(*_arguments, **_keywords):
        raise RuntimeError(f"{module}.{name} has a stand-in here: the parcel leaves {module.partition('.')[0]} out")

    return type(name, (), {"__module__": module, "__init__": refuse})


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules of STAND_INS, with every submodule. It comes last: a real module is preferred."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] not in STAND_INS:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        def get(name):
            if name.startswith("__"):
                raise AttributeError(name)
            made = _make(module.__name__, name)
            setattr(module, name, made)
            return made

        module.__version__ = "0.0"
        module.__getattr__ = get


def _run_hidden(own):
    """Runs the sitecustomize that this file hides, if there is one."""
    folders = [folder for folder in sys.path if pathlib.Path(folder or ".").resolve() != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", folders)
    if spec is not None and spec.loader is not None:
        module = type(sys)("sitecustomize")
        module.__file__ = spec.origin
        spec.loader.exec_module(module)


def main():
    own = pathlib.Path(__file__).resolve().parent
    sys.path.extend(str(own.parent / name) for name in ("site", "needed"))
    sys.meta_path.append(StandIns())
    _run_hidden(own)


main()
