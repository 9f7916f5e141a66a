#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lists the CUDA images inside a shared library, or writes a copy that holds those of one architecture only.

    fatbin.py list LIBRARY...
    fatbin.py cut LIBRARY COPY [--arch 90] [--no-ptx]

A library holds fatbins. A fatbin is a header of 16 bytes (magic, version, header size, bytes that follow) and images, one
after another; each image has a header of its own with its kind (PTX or machine code), sizes and architecture. `cut` keeps
the machine code of one architecture, moves it to the front of the fatbin and fills the rest with zeros: no byte outside of
fatbins changes its place, and zeros compress to nothing. A fatbin without machine code of the architecture keeps its PTX,
which the driver compiles on first use. CUDA refuses an empty fatbin, so one that would be empty keeps one small image.
"""
import argparse
import collections
import struct
import sys
import typing

MAGIC = struct.pack("<I", 0xBA55ED50)
HEADER = struct.Struct("<IHHQ")  # magic, version, size of this header, bytes of images
IMAGE = struct.Struct("<HHIQ")  # kind, version, size of this header, bytes of the payload
ARCH_AT, IMAGE_LEAST, IMAGE_MOST = 28, 64, 4096  # offset of the architecture in an image's header; sizes that headers have
KINDS = {1: "PTX", 2: "code"}


class Image(typing.NamedTuple):
    """One image of a fatbin: bytes start to start + size, header included."""

    kind: str
    arch: int
    start: int
    size: int


class Fatbin(typing.NamedTuple):
    """The images of one fatbin. They begin at `start`, behind the header, and may have `room` bytes."""

    start: int
    room: int
    images: list


def _read_images(data, start, end):
    images = []
    while start + IMAGE_LEAST <= end:
        kind, _, header, payload = IMAGE.unpack_from(data, start)
        if kind not in KINDS or not IMAGE_LEAST <= header <= IMAGE_MOST or start + header + payload > end:
            break
        arch, = struct.unpack_from("<I", data, start + ARCH_AT)
        images.append(Image(KINDS[kind], arch, start, header + payload))
        start += header + payload
    return images


def find_fatbins(data):
    """Returns the list of the fatbins in the bytes of a library."""
    found, place = [], data.find(MAGIC)
    while place >= 0:
        after = place + 4
        if place + HEADER.size <= len(data):
            _, version, header, room = HEADER.unpack_from(data, place)
            start = place + header
            if version == 1 and header == HEADER.size and start + room <= len(data):
                images = _read_images(data, start, start + room)
                if images:
                    found.append(Fatbin(start, room, images))
                    after = start + room
        place = data.find(MAGIC, after)
    return found


def _choose(fatbin, arch, keep_ptx, spare):
    kept = [image for image in fatbin.images if image.kind == "code" and image.arch == arch]
    if not kept and keep_ptx:
        kept = [image for image in fatbin.images if image.kind == "PTX"]
    return kept or [min([*fatbin.images, *spare], key=lambda image: image.size)]


def cut(data, arch=90, keep_ptx=True):
    """Returns a copy of a library's bytes with the images of one architecture."""
    fatbins = find_fatbins(data)
    others = [image for fatbin in fatbins for image in fatbin.images if image.kind == "code" and image.arch != arch]
    spare = sorted(others, key=lambda image: image.size)[:1]  # stands in fatbins that would be empty
    copy = bytearray(data)
    for fatbin in fatbins:
        kept = _choose(fatbin, arch, keep_ptx, spare)
        body = b"".join(data[image.start:image.start + image.size] for image in kept)
        if len(body) > fatbin.room:
            raise ValueError(f"the images kept need {len(body)} bytes and the fatbin has {fatbin.room}")
        struct.pack_into("<Q", copy, fatbin.start - 8, len(body))
        copy[fatbin.start:fatbin.start + fatbin.room] = body.ljust(fatbin.room, b"\0")
    return bytes(copy)


def count(data):
    """Returns {(kind, architecture): (images, bytes)}."""
    numbers, sizes = collections.Counter(), collections.Counter()
    for fatbin in find_fatbins(data):
        for image in fatbin.images:
            numbers[image.kind, image.arch] += 1
            sizes[image.kind, image.arch] += image.size
    return {key: (numbers[key], sizes[key]) for key in sorted(numbers)}


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SystemExit(f"fatbin.py: {path}: {error.strerror}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    lister = verbs.add_parser("list", help="prints the images by kind and architecture")
    lister.add_argument("library", nargs="+")
    cutter = verbs.add_parser("cut", help="writes a copy with the images of one architecture")
    cutter.add_argument("library")
    cutter.add_argument("copy")
    cutter.add_argument("--arch", type=int, default=90)
    cutter.add_argument("--no-ptx", action="store_true", help="drops PTX too")
    arguments = parser.parse_args()
    if arguments.verb == "cut":
        data = cut(_read(arguments.library), arguments.arch, not arguments.no_ptx)
        with open(arguments.copy, "wb") as file:
            file.write(data)
        return 0
    for path in arguments.library:
        print(path)
        for (kind, arch), (number, size) in count(_read(path)).items():
            print(f"  {kind:4} sm_{arch:<4} {number:5} images {size / 2**20:9.2f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
