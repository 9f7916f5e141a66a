# SPDX-License-Identifier: MIT
"""Exceptions. Every failed call of Loch raises an Error; its class is also the one that Python programs expect."""

from __future__ import annotations


class Error(RuntimeError):
    """A call of Loch that failed: a sentence for people, and the name of its status ("E_LIMIT").

    If memory was short: the owner of the limit or of the memory, the bytes that it lacks, the remedy ("free": evict
    something or wait; "none": the request can never fit; "unknown") and the number of attempts.
    """

    def __init__(
        self,
        sentence: str = "",
        status: str = "E_INVALID",
        owner: str = "",
        missing_bytes: int = 0,
        remedy: str = "unknown",
        attempts: int = 0,
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.status = status
        self.owner = owner
        self.missing_bytes = missing_bytes
        self.remedy = remedy
        self.attempts = attempts

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, str, int, str, int]]:
        return type(self), (
            self.sentence,
            self.status,
            self.owner,
            self.missing_bytes,
            self.remedy,
            self.attempts,
        )


class OutOfMemoryError(Error, MemoryError):
    """Memory is short: of the device, of the host, or of a limit."""


class InvalidError(Error, ValueError):
    """An argument is not valid, or contents are damaged."""


class SizeError(OutOfMemoryError, OverflowError, ValueError):
    """A size does not fit the address space."""


class OutOfRangeError(Error, IndexError):
    """An index or a range reaches beyond its memory; ends loops over a tensor."""


class NotFoundError(Error, LookupError):
    """There is no device, driver, library or option of that name."""


class MissingFileError(NotFoundError, FileNotFoundError):
    """There is no file or folder of that name."""


class FileError(Error, OSError):
    """A file cannot be read or written."""


class ExportError(Error, BufferError):
    """A tensor that cannot be exported: the protocol of DLPack requires a BufferError."""


class KeyTypeError(IndexError, TypeError):
    """Something that is no index of a tensor."""


_CLASSES: dict[str, type[Error]] = {
    "E_INVALID": InvalidError,
    "E_OVERFLOW": SizeError,
    "E_HOST_MEMORY": OutOfMemoryError,
    "E_DEVICE_MEMORY": OutOfMemoryError,
    "E_LIMIT": OutOfMemoryError,
    "E_ADDRESSES": OutOfMemoryError,
    "E_FRAGMENTED": OutOfMemoryError,
    "E_NOT_FOUND": NotFoundError,
    "E_DOUBLE_FREE": InvalidError,
    "E_FOREIGN": InvalidError,
    "E_INTERIOR": InvalidError,
    "E_OUT_OF_RANGE": OutOfRangeError,
    "E_CORRUPT": InvalidError,
    "E_IO": FileError,
}


def failure(
    status: str, sentence: str, owner: str = "", missing_bytes: int = 0, remedy: str = "unknown", attempts: int = 0
) -> Error:
    """Makes the exception of a status."""
    return _CLASSES.get(status, Error)(sentence, status, owner, missing_bytes, remedy, attempts)


def file_failure(
    status: str, sentence: str, owner: str = "", missing_bytes: int = 0, remedy: str = "unknown", attempts: int = 0
) -> Error:
    """Makes the exception of a call that was given a path."""
    if status == "E_NOT_FOUND":
        return MissingFileError(sentence, status, owner, missing_bytes, remedy, attempts)
    return failure(status, sentence, owner, missing_bytes, remedy, attempts)


def export_failure(
    status: str, sentence: str, owner: str = "", missing_bytes: int = 0, remedy: str = "unknown", attempts: int = 0
) -> Error:
    """Makes the exception of an export that failed."""
    return ExportError(sentence, status, owner, missing_bytes, remedy, attempts)
