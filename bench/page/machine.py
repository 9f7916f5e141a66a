# SPDX-License-Identifier: MIT
"""The machine under the figures: what it is, how busy it is, and which peers are installed in which version."""
import functools
import glob
import os
import platform
import re
import resource
import shutil
import subprocess

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "loch")
ALLOCATORS = {"jemalloc": "libjemalloc.so.2", "mimalloc": "libmimalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
# Environments of scripts/setup in the cache, and the package of PyPI that counts in each.
ENVIRONMENTS = {"UMF": ("umf", "umf"), "ONNX Runtime": ("onnxruntime", "onnxruntime"), "Arrow": ("arrow", "pyarrow"),
                "PyTorch": ("torch", "torch")}
PROGRAMS = {"redis": ["redis-server", "--version"], "sqlite": ["sqlite3", "--version"], "valgrind": ["valgrind", "--version"]}
BUSY_PART = 0.25  # of all processors, used by other programs while a part ran


def first_line(command, **how):
    """Returns the first line that a command prints, or an empty text if the command does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=False, **how)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else ""


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def find(pattern, text, otherwise=""):
    found = re.search(pattern, text, re.M)
    return found.group(1).strip() if found else otherwise


def cores():
    return len(os.sched_getaffinity(0))


def memory_bytes():
    return 1024 * int(find(r"^MemTotal: *(\d+)", read("/proc/meminfo"), "0"))


@functools.lru_cache(None)
def gpu():
    """Returns model, memory and driver of the first GPU, or an empty text."""
    return first_line(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])


@functools.lru_cache(None)
def library_path(name):
    """Returns the path of a shared library that the loader finds by name, or None."""
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder and os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    for program in ("ldconfig", "/sbin/ldconfig"):
        try:
            text = subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout
        except OSError:
            continue
        return find(rf"^\s*{re.escape(name)} .*=> (\S+)", text) or None
    return None


def allocators():
    """Returns the allocators that are installed, by name, with the name of the library for LD_PRELOAD."""
    return {name: library for name, library in ALLOCATORS.items() if library_path(library)}


def absent_allocators():
    return [name for name, library in ALLOCATORS.items() if not library_path(library)]


def lines_of(command):
    """Returns the lines that a command prints, whatever its status; none if it does not run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=False).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


def package_versions(paths):
    """Returns name and version of the Debian package of each file, by path. Files of no package are left out."""
    known = {}  # a package may name a file by its old place: /lib for /usr/lib
    for path in paths:
        for name in (path, os.path.realpath(path), os.path.realpath(path).removeprefix("/usr")):
            known[name] = path
    owners = {}
    for line in lines_of(["dpkg-query", "-S", *known]):
        package, _, file = line.rpartition(": ")
        if file in known:
            owners[known[file]] = package.split(",")[0]
    if not owners:
        return {}
    listed = lines_of(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *owners.values()])
    versions = dict(line.split(" ", 1) for line in listed)
    names = {path: package.split(":")[0] for path, package in owners.items()}
    return {path: f"{name} {versions[name]}" for path, name in names.items() if name in versions}


def environment_python(name):
    """Returns the interpreter of an environment in the cache, or None."""
    path = os.path.join(CACHE, name, "bin", "python")
    return path if os.path.exists(path) else None


def environment_version(folder, package):
    for path in glob.glob(os.path.join(CACHE, folder, "lib", "python3*", "site-packages", package + "-*.dist-info", "METADATA")):
        return find(r"^Version: (.*)", read(path))
    return ""


def peers(chromium):
    """Returns the version of each peer by name; None for those that are not installed."""
    pocl = "/etc/OpenCL/vendors/pocl.icd"
    paths = {name: library_path(library) for name, library in ALLOCATORS.items()}
    versions = package_versions([path for path in paths.values() if path] + [pocl] * os.path.exists(pocl))
    result = {name: versions.get(path, "installed, version unknown") if path else None for name, path in paths.items()}
    for name, (folder, package) in ENVIRONMENTS.items():
        result[name] = environment_version(folder, package) or None
    if result["PyTorch"] is None and gpu():
        result["PyTorch"] = first_line(["python3", "-c", "import torch; print(torch.__version__)"]) or None
    llama = read(os.path.join(CACHE, "llama", "version")).strip()
    result["llama.cpp"] = f"of llama-cpp-python {llama}" if llama else None
    result["OpenCL"] = versions.get(pocl, "installed, version unknown") if library_path("libOpenCL.so.1") else None
    result["Chromium"] = first_line([chromium, "--version"]) or None if chromium else None
    for name, command in PROGRAMS.items():
        result[name] = find(r"(\d+(?:\.\d+)+)", first_line(command)) or None if shutil.which(command[0]) else None
    return result


def version_of_loch(root, build):
    """Returns the version that the program prints and the commit of the sources, where they are a repository."""
    version = first_line([os.path.join(build, "bin", "loch"), "--version"])
    if os.path.realpath(first_line(["git", "rev-parse", "--show-toplevel"], cwd=root) or "/") != os.path.realpath(root):
        return version
    commit = first_line(["git", "rev-parse", "--short=12", "HEAD"], cwd=root)
    changed = first_line(["git", "status", "--porcelain", "--untracked-files=no"], cwd=root)
    return f"{version}, commit {commit}{' with changes' if changed else ''}"


def describe(root, build):
    """Returns the rows of the table of the machine. Call it before anything runs: it reads the load."""
    cpu = read("/proc/cpuinfo")
    model = find(r"^model name\s*: (.*)", cpu) or first_line(["sh", "-c", "lscpu | sed -n 's/^Model name: *//p'"])
    settings = read(os.path.join(build, "CMakeCache.txt"))
    compiler = find(r"^CMAKE_C_COMPILER:[A-Z]+=(.*)", settings, "cc")
    sanitizers = find(r"^LOCH_SANITIZE:[A-Z]+=(.*)", settings)
    return {
        "processor": f"{model or platform.machine()}, {cores()} processors" + (f" of {os.cpu_count()}" if cores() != os.cpu_count() else ""),
        "memory": f"{memory_bytes() / 2**30:.1f} GiB",
        "system": f"{find(r'^PRETTY_NAME=(.*)', read('/etc/os-release')).strip(chr(34)) or platform.system()}, "
                  f"Linux {platform.release()}, {' '.join(platform.libc_ver())}",
        "GPU": gpu() or "no GPU",
        "Loch": version_of_loch(root, build),
        "build": find(r"^CMAKE_BUILD_TYPE:[A-Z]+=(.*)", settings) or ("Debug" if sanitizers else "RelWithDebInfo"),
        "compiler": first_line([compiler, "--version"]) or "unknown",
        "load at the start": " ".join(f"{load:.1f}" for load in os.getloadavg()) + " (1, 5, 15 minutes)",
    }


class Others:
    """Measures how many processors other programs use: the time of all processors without that of this process's children."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        ticks = [int(word) for word in read("/proc/stat").split("\n", 1)[0].split()[1:9] or [0] * 8]
        busy = sum(ticks) - ticks[3] - ticks[4]  # without idle and waiting for a disk
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return busy / os.sysconf("SC_CLK_TCK"), used.ru_utime + used.ru_stime, os.times().elapsed

    def processors(self):
        """Returns the processors that others used on average since this object was made."""
        busy, own, wall = (after - before for after, before in zip(self.now(), self.start))
        return max(0.0, busy - own) / wall if wall > 0 else 0.0
