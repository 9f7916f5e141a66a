# SPDX-License-Identifier: MIT
"""A test double of vLLM's backends: found by name, made when the first sleep needs one."""

import importlib


class SleepModeBackend:
    def __init__(self):
        self._state = "RUNNING"


class SleepModeBackendFactory:
    _registry = {}

    @classmethod
    def register_backend(cls, name, module, backend):
        if name in cls._registry:
            raise ValueError(f"backend {name} is registered already")
        cls._registry[name] = (module, backend)

    @classmethod
    def create_backend(cls, config):
        module, backend = cls._registry[config.sleep_mode_backend]
        return getattr(importlib.import_module(module), backend)()
