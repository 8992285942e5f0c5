#!/usr/bin/env python3
"""Serves random models by an edited llama-server as a router: more models than there is room for.

    serve.py --checkout llama.cpp --build build/llama_cpp --out bench/results            on a GPU; edits and builds first
    serve.py --fetch build/llama_cpp/source --build build/llama_cpp --cpu                host memory, tiny models
    serve.py --checkout llama.cpp --server build/bin/llama-server ...                    an existing build

The same requests, of several clients at once and to models by a Zipf law, go to two routers, with the same binary and
flags:

    reload     GGML_MEMSAVER=off and --models-max ROOM: llama.cpp's own router, which ends a worker to make room
    memsaver   every model has a worker; they are members of a share, in room for ROOM models. Another process holds the
               rest of the device, a memsaver-keeper keeps what is published

Before, each model answers each prompt once, served alone with GGML_MEMSAVER=off; all later answers must be the same
tokens. At the end a worker is killed, and asked at once. Time to first token is what a client measures. `--out` is a
folder for the results, written after each step. Exits with 1 if an answer differed or failed, and with 77 if the source
or a tool is not available.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import http.client
import json
import math
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import run_all  # noqa: E402
from run_all import LeftOut, machine, output_of, python_with, short  # noqa: E402

SIDES = {"reload": "off", "memsaver": "gpu"}  # and GGML_MEMSAVER
PROMPTS = 4  # different ones for each model
MANY = "many"  # the first model once more, with a slot for each client
MARGIN = 1 << 30  # that workers leave free on a GPU
PUBLISHED_AFTER = 10  # seconds for which a worker is idle


# --- Servers ---


class Server:
    """One llama-server, or a router. Depends on nothing else here."""

    def __init__(self, name, command, environment, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.name, self.log = name, log
        with log.open("w", encoding="utf-8") as out:
            self.process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(self.port)], stdout=out, stderr=out,
                                            env={**os.environ, **environment})

    def call(self, method, path, body=None, limit=300):
        """Returns the open response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit)
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def say(self, method, path, body=None):
        connection, response = self.call(method, path, body)
        text = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{self.name}: {path}: {response.status}: {text[:200]}")
        return json.loads(text)

    def await_ready(self, limit=180):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                self.say("GET", "/health")
                return
            except (OSError, RuntimeError, http.client.HTTPException):
                time.sleep(0.1)
        tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-50:]
        raise RuntimeError("\n".join([f"{self.name}: did not start: exit {self.process.poll()}", *tail]))

    def ask(self, model, prompt, tokens, cache=False):
        """Returns (seconds to the first token, all tokens, the server's timings)."""
        start = time.monotonic()
        body = {"model": model, "prompt": prompt, "n_predict": tokens, "temperature": 0, "top_k": 1, "seed": 1, "stream": True, "ignore_eos": True,
                "return_tokens": True, "cache_prompt": cache}
        connection, response = self.call("POST", "/completion", body)
        if response.status != 200:
            raise RuntimeError(f"{self.name}: {response.status}: {response.read()[:200]}")
        first, answer, timings = None, [], {}
        for line in response:
            if line.startswith(b"error"):
                raise RuntimeError(f"{self.name}: {line[:200]}")
            if line.startswith(b"data: {"):
                said = json.loads(line[6:])
                if "error" in said:
                    raise RuntimeError(f"{self.name}: {said['error']}")
                timings = said.get("timings", timings)
                if said.get("tokens") and not said.get("stop"):
                    first = first or time.monotonic() - start
                    answer += said["tokens"]
        connection.close()
        if len(answer) != tokens:
            raise RuntimeError(f"{self.name}: {len(answer)} tokens and not {tokens}")
        return first, answer, timings

    def status(self, model):
        return next(each["status"]["value"] for each in self.say("GET", "/models")["data"] if each["id"] == model)

    def is_here(self, model):
        """Whether a model is on the device now: its worker lives, and its weights are mapped."""
        if self.status(model) != "loaded":
            return False
        if self.name == "reload":
            return True
        memory = self.say("GET", f"/memory?model={model}")["memory"]
        return all(arena["mapped_bytes"] for arena in memory["arenas"] if arena["tag"] == "weights")

    def sleep(self, model):
        """Makes a worker give back its memory; returns how long that takes."""
        start = time.monotonic()
        self.say("POST", "/sleep", {"model": model})
        return time.monotonic() - start

    def unload(self, model):
        start = time.monotonic()
        if self.status(model) != "unloaded":
            self.say("POST", "/models/unload", {"model": model})
        while self.status(model) != "unloaded":
            time.sleep(0.01)
        return time.monotonic() - start

    def worker(self, model):
        """Returns the number of the process that serves a model."""
        for child in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for number in child.read_text(encoding="utf-8").split():
                words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
                if b"--alias" in words and words[words.index(b"--alias") + 1] == model.encode():
                    return int(number)
        raise RuntimeError(f"{model} has no worker")

    def close(self):
        """Waits until the process, which was asked to terminate, has ended."""
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# --- Numbers ---


def percentile(values, share):
    """The smallest value that at least this share of the values does not exceed; None if there are none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def told(values, name=""):
    """Returns p50 and p99 in ms of seconds."""
    return {f"{name}{key}_ms": 1000 * percentile(values, share) for key, share in (("p50", 0.5), ("p99", 0.99)) if values}


def host_available():
    """Bytes of host memory that programs could still get, within the limit of the control group."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
    free = int(lines["MemAvailable"].split()[0]) << 10
    try:
        group = Path("/sys/fs/cgroup")
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines())
        used = int((group / "memory.current").read_text(encoding="utf-8")) - int(stat["file"])
        return min(free, int((group / "memory.max").read_text(encoding="utf-8")) - used)
    except (OSError, ValueError, KeyError):
        return free


def device_used():
    """Bytes of the first GPU's memory in use by all programs; None without a GPU."""
    said = output_of("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").splitlines()
    return int(said[0]) << 20 if said and said[0].isdigit() else None


class Watch(threading.Thread):
    """Notes the most memory in use from now until it is asked."""

    def __init__(self, device, host_before):
        super().__init__(daemon=True)
        self.device, self.host_before, self.over = device, host_before, threading.Event()
        self.most = {}
        self.start()

    def look(self):
        now = {"host_bytes": self.host_before - host_available()}
        if self.device and (used := device_used()) is not None:
            now["device_bytes"] = used
        self.most = {key: max(value, self.most.get(key, 0)) for key, value in now.items()}

    def run(self):
        while not self.over.wait(0.5):
            self.look()

    def end(self):
        self.over.set()
        self.join()
        self.look()
        return self.most


def plain_copy_gb_per_second(bytes_=1 << 30):
    """Returns the speed of cudaMemcpy from pinned memory to the device, the best of five; None without a CUDA runtime."""
    try:
        cuda = ctypes.CDLL("libcudart.so")
    except OSError:
        return None
    host, device, best = ctypes.c_void_p(), ctypes.c_void_p(), None
    size = ctypes.c_size_t(bytes_)
    if cuda.cudaMallocHost(ctypes.byref(host), size) == 0 and cuda.cudaMalloc(ctypes.byref(device), size) == 0:
        for _ in range(5):
            start = time.monotonic()
            if cuda.cudaMemcpy(device, host, size, 1) == 0:
                best = max(best or 0, bytes_ / (time.monotonic() - start) / 1e9)
    cuda.cudaDeviceReset()
    return best


HOG = """
import ctypes, sys
cuda = ctypes.CDLL("libcudart.so")
free, total, block = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
print(cuda.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(max(0, free.value - int(sys.argv[1])))), flush=True)
sys.stdin.read()
"""


class Share:
    """What the members of a share need: a folder, a keeper, and on a GPU somebody who holds what is not theirs."""

    def __init__(self, keeper, bytes_left):
        self.folder = Path(tempfile.mkdtemp(prefix="llama-share-"))
        self.others = [subprocess.Popen([str(keeper), str(self.folder)], stdout=subprocess.PIPE, text=True)]
        self.others[0].stdout.readline()
        if bytes_left is not None:
            hog = subprocess.Popen([sys.executable, "-c", HOG, str(bytes_left)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.others.append(hog)
            if hog.stdout.readline().strip() != "0":
                raise RuntimeError("could not hold the rest of the device")

    def close(self):
        for each in self.others:
            each.terminate()
            each.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


# --- The run ---


class Run:
    def __init__(self, about):
        self.about, self.rows, self.failed = about, [], False
        self.context, self.expected, self.servers, self.share = machine(), {}, [], None
        self.folder = about.work or about.build
        self.place = "host" if about.cpu else "gpu"  # GGML_MEMSAVER with memsaver
        self.end = time.monotonic() + about.deadline
        self.host_before = host_available()
        self.files = self.make_files()
        self.bytes = self.files[0].stat().st_size
        self.names = [f"model{number}" for number in range(self.fitting())]
        order = random.Random(7)
        self.prompts = [[[order.randrange(300, about.vocab) for _ in range(about.prompt)] for _ in range(PROMPTS)] for _ in self.names]
        weights = [1 / (rank + 1) ** about.zipf for rank in range(len(self.names))]
        models = order.choices(range(len(self.names)), weights, k=about.requests)
        self.requests = [(model, order.randrange(PROMPTS)) for model in models]

    def row(self, name, good=True, **values):
        self.rows.append({"name": name, "good": bool(good), **values})
        self.failed |= not good
        shown = " ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items())
        print(f"{self.about.deadline - self.left():6.1f} s  {name:<22} {'' if good else 'FAILED '}{shown}", flush=True)
        if self.about.out:
            path = self.about.out / f"{self.context['date']}-{short(self.context['gpu'])}-llama_server.json"
            path.write_text(json.dumps({"context": self.context, "benchmarks": self.rows}, indent=1) + "\n", encoding="utf-8")

    def make_files(self):
        """Writes the models' files. Further models are these files with another base of rotary embeddings: they give
        other tokens, and take no disk."""
        files = []
        for number in range(min(self.about.files, self.about.models)):
            file = self.folder / f"served-{number}-{'cpu' if self.about.cpu else 'gpu'}.gguf"
            if not file.exists():
                command = [python_with("numpy"), str(HERE / "random_model.py"), "--checkout", self.about.checkout, "--out", file, "--words",
                           "--seed", str(number + 1), *self.about.shape.split()]
                subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            files.append(file)
        return files

    def fitting(self):
        """Returns how many of the models have room for their backups in host memory."""
        fit = int((host_available() - (1 << 30 if self.about.cpu else 10 << 30)) / (1.05 * self.bytes + (512 << 20)))
        if fit < self.about.models:
            print(f"host memory suffices for {fit} of {self.about.models} models")
        return max(1, min(fit, self.about.models))

    def options(self, model, slots=1):
        """Of a model's server, as llama-server and a preset name them."""
        named = {"model": self.files[model % len(self.files)], "threads": 1, "ctx-size": 512 * slots, "parallel": slots, "fit": "off", "cache-ram": 0,
                 "rope-freq-base": 10000 + 1000 * (model // len(self.files))}
        return {**named, **({"load-mode": "none"} if self.about.cpu else {"n-gpu-layers": 99})}

    def start(self, name, arguments, environment):
        server = Server(name, [str(self.about.server), *map(str, arguments), *self.about.flags.split()], environment, self.folder / f"{name}.log")
        self.servers.append(server)
        server.await_ready()
        return server

    def start_alone(self, model, where):
        """Starts a server of one model, without a router; `where`: GGML_MEMSAVER."""
        arguments = [part for name, value in self.options(model).items() for part in (f"--{name}", value)]
        return self.start(f"alone-{model}-{where}", arguments, {"GGML_MEMSAVER": where})

    def stop(self, servers):
        for server in servers:
            server.process.terminate()
        for server in servers:
            server.close()
            self.servers.remove(server)

    def close(self):
        self.stop(list(self.servers))
        if self.share:
            self.share.close()
            self.share = None

    def left(self):
        return self.end - time.monotonic()

    def ask(self, server, model, number, name=None):
        """Returns seconds to the first token, and whether the tokens are the expected ones."""
        first, answer, _ = server.ask(name or self.names[model], self.prompts[model][number], self.about.tokens)
        return first, self.expected.setdefault((model, number), answer) == answer

    def alone(self):
        """Each model served alone, without memsaver: the tokens that all others must give. And what one takes with it."""

        def one(model):
            server = self.start_alone(model, "off")
            for number in range(PROMPTS):
                self.ask(server, model, number)
            self.stop([server])

        with concurrent.futures.ThreadPoolExecutor(self.about.room) as pool:
            list(pool.map(one, range(len(self.names))))
        before = device_used()
        server = self.start_alone(0, self.place)
        good = self.ask(server, 0, 0)[1]
        self.held = sum(arena["mapped_bytes"] for arena in server.say("GET", "/memory")["memory"]["arenas"])
        self.beside = 0 if self.about.cpu else device_used() - before - self.held  # its context
        self.stop([server])
        self.row("alone", good, models=len(self.names), held_bytes=self.held, beside_bytes=self.beside)

    def generation(self, turns=40, tokens=128):
        """Generation of model 0 by two servers that take turns, each alone on its device for that long: speeds of one
        server differ by several percent from answer to answer, and from minute to minute."""
        servers = {side: self.start_alone(0, of) for side, of in (("memsaver", self.place), ("unmodified", "off"))}
        self.ask(servers["memsaver"], 0, 0)
        servers["memsaver"].say("POST", "/sleep", {})
        speeds = {side: [] for side in servers}
        for turn in range(turns + 2):
            for side in sorted(servers, reverse=turn % 2):
                speed = servers[side].ask(self.names[0], self.prompts[0][0], tokens)[2]["predicted_per_second"]
                if turn > 1:  # the first wakes it and captures graphs
                    speeds[side].append(speed)
        self.stop(list(servers.values()))
        of = {side: statistics.median(all_of) for side, all_of in speeds.items()}
        spread = {f"{side}_{what}": percentile(speeds[side], share) for side in speeds for what, share in (("p10", 0.1), ("p90", 0.9))}
        self.row("generation", turns=turns, tokens=tokens, **of, **spread, ratio=of["memsaver"] / of["unmodified"])

    def start_router(self, side):
        """Starts the router, and asks each model once."""
        begin, about = time.monotonic(), self.about
        preset = self.folder / f"{side}.ini"
        sections = {name: self.options(model) for model, name in enumerate(self.names)} | {MANY: self.options(0, about.clients)}
        preset.write_text("version = 1\n" + "".join(f"\n[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in options.items())
                                                    for name, options in sections.items()), encoding="utf-8")
        arguments = ["--models-preset", preset, "--models-max", about.room if side == "reload" else 0]
        environment = {"GGML_MEMSAVER": "off"}
        if side == "memsaver":
            room = (about.room + 0.5) * self.held
            beside = (len(self.names) + 1) * self.beside + MARGIN
            self.share = Share(about.keeper, None if about.cpu else int(room + beside))
            environment = {"GGML_MEMSAVER": self.place, "GGML_MEMSAVER_SHARE": str(self.share.folder), "GGML_MEMSAVER_PUBLISH": str(PUBLISHED_AFTER),
                           "GGML_MEMSAVER_MARGIN_MIB": "0" if about.cpu else str(MARGIN >> 20), "GGML_MEMSAVER_HOST_MACHINE": self.share.folder.name,
                           "GGML_MEMSAVER_HOST_MIB": str(int(room) >> 20)}
        router = self.start(side, arguments, environment)
        same = sum(self.ask(router, model, 0)[1] for model in range(len(self.names)))
        if side == "memsaver":
            for name in self.names:
                router.sleep(name)
        values = {"models": len(self.names), "identical": same, "seconds": time.monotonic() - begin, **Watch(not about.cpu, self.host_before).end()}
        self.row(f"{side}/all loaded", same == len(self.names), **values)
        return router

    def one_model(self, side, router):
        """Time to first token of model 0, awake and asleep."""
        name, cycles = self.names[0], self.about.cycles
        give_back = router.sleep if side == "memsaver" else router.unload
        self.ask(router, 0, 0)
        awake = [self.ask(router, 0, turn % PROMPTS) for turn in range(cycles)]
        same = sum(good for _, good in awake)
        self.row(f"{side}/awake", same == cycles, count=cycles, identical=same, **told([first for first, _ in awake]))
        end, asleep, giving = time.monotonic() + self.about.seconds / 4, [], []
        while len(asleep) < cycles and (time.monotonic() < end or len(asleep) < 3):
            giving.append(give_back(name))
            asleep.append(self.ask(router, 0, len(asleep) % PROMPTS))
        same = sum(good for _, good in asleep)
        router.ask(name, self.prompts[0][0], self.about.tokens, cache=True)
        give_back(name)
        kept = router.ask(name, self.prompts[0][0], self.about.tokens, cache=True)[2].get("cache_n", 0)
        self.row(f"{side}/asleep", same == len(asleep), count=len(asleep), identical=same, bytes=self.bytes, prompt_tokens_kept=kept,
                 **told([first for first, _ in asleep]), **told(giving, "sleep_"))

    def clients(self, side, router):
        """Time to first token of each of several clients of one sleeping model, whose worker has a slot for each."""
        give_back, answers = router.sleep if side == "memsaver" else router.unload, []
        end = time.monotonic() + self.about.seconds / 8
        router.unload(self.names[0])  # in its place
        with concurrent.futures.ThreadPoolExecutor(self.about.clients) as pool:
            self.ask(router, 0, 0, MANY)
            for turn in range(max(2, self.about.cycles // 4)):
                if turn > 1 and time.monotonic() > end:
                    break
                give_back(MANY)
                answers += pool.map(lambda number: self.ask(router, 0, number % PROMPTS, MANY), range(self.about.clients))
        router.unload(MANY)
        # Requests that are computed together may round otherwise: not a failure.
        self.row(f"{side}/clients", clients=self.about.clients, identical=sum(good for _, good in answers), answers=len(answers),
                 **told([first for first, _ in answers]))

    def turns(self, side, router):
        """Concurrent requests to all models, by a Zipf law."""
        waiting, times, errors, lock = collections.deque(self.requests), {True: [], False: []}, [], threading.Lock()
        begin = time.monotonic()
        end = begin + min(self.about.seconds, max(5.0, self.left()))

        def client():
            while time.monotonic() < end:
                with lock:
                    if not waiting:
                        return
                    model, number = waiting.popleft()
                try:
                    hit = router.is_here(self.names[model])
                    answer = self.ask(router, model, number)
                    with lock:
                        times[hit].append(answer)
                except (OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
                    with lock:
                        errors.append(str(error))

        watch = Watch(not self.about.cpu, self.host_before)
        threads = [threading.Thread(target=client) for _ in range(self.about.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, answers = time.monotonic() - begin, times[True] + times[False]
        first, hits, misses = ([first for first, _ in of] for of in (answers, times[True], times[False]))
        different = sum(not good for _, good in answers)
        for error in errors[:3]:
            print(error)
        self.row(f"{side}/turns", not errors and different == 0 and len(answers) > 0, models=len(self.names), room=self.about.room, clients=self.about.clients,
                 requests=len(answers), asked=len(self.requests), failed=len(errors), different=different, seconds=seconds,
                 requests_per_second=len(answers) / seconds, **told(first), hits=len(hits), **told(hits, "hit_"), **told(misses, "miss_"), **watch.end())

    def killed(self, side, router):
        """Kills model 0's worker, and asks at once."""
        self.ask(router, 0, 0)
        time.sleep(PUBLISHED_AFTER + 2 if side == "memsaver" else 3)
        os.kill(router.worker(self.names[0]), signal.SIGKILL)
        first, good = self.ask(router, 0, 0)
        came = router.log.read_text(encoding="utf-8", errors="replace").count("weights came from a predecessor")
        self.row(f"{side}/killed", good and (came == 1 or side == "reload"), first_token_ms=1000 * first, weights_attached=came)

    def side(self, side):
        router = self.start_router(side)
        for step in (self.one_model, self.turns, self.clients, self.killed):
            if self.left() < 5:
                self.context["cut"] = "the deadline was reached"
                return
            step(side, router)

    def all(self):
        about = self.about
        self.context |= {"llama_cpp": run_all.PACKAGE, "workload": {
            "file_bytes": self.bytes, "files": len(self.files), "models": len(self.names), "room": about.room, "zipf": about.zipf, "prompt": about.prompt,
            "tokens": about.tokens, "clients": about.clients, "flags": about.flags, "options": {**self.options(0), "model": self.files[0].name}}}
        if not about.cpu and (speed := plain_copy_gb_per_second()):
            self.row("plain copy", gb_per_second=speed)
        self.alone()
        self.generation(*((4, 16) if about.cpu else ()))
        for side in about.sides.split(","):
            try:
                self.side(side)
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                print(error)
                self.row(f"{side}/failed", False, error=str(error).splitlines()[0])
            finally:
                self.close()
        rates = [next((row["requests_per_second"] for row in self.rows if row["name"] == f"{side}/turns"), None) for side in SIDES]
        if all(rates):
            self.row("memsaver/of reload", requests_ratio=rates[1] / rates[0])
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkout", type=Path)
    source.add_argument("--fetch", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build/llama_cpp"))
    parser.add_argument("--server", type=Path, help="an existing llama-server of an edited checkout; nothing is edited or built")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", type=Path, help="folder for models and logs; default: the build's")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--room", type=int, default=3, help="models that there is room for")
    parser.add_argument("--files", type=int, help="different files among the models; default: one each on a CPU, else 1")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--zipf", type=float, default=1.0)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--cycles", type=int, default=40, help="sleeps of one model")
    parser.add_argument("--seconds", type=float, default=120, help="limit for the turns of each side")
    parser.add_argument("--deadline", type=float, default=3600, help="seconds after which no step begins")
    parser.add_argument("--shape", help="arguments of random_model.py")
    parser.add_argument("--flags", default="", help="further flags of both sides' servers")
    parser.add_argument("--cmake", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    about = parser.parse_args()
    about.files = about.files or (about.models if about.cpu else 1)
    about.shape = about.shape or " ".join((run_all.CPU_MODELS if about.cpu else run_all.GPU_MODELS)[0][1])
    about.vocab = int(about.shape.split("--vocab ")[1].split()[0])
    if set(about.sides.split(",")) - set(SIDES):
        parser.error(f"--sides must be a comma-separated list of {', '.join(SIDES)}")
    try:
        python_with("numpy")
        about.checkout = (about.checkout or run_all.fetch(about.fetch)).resolve()
    except LeftOut as why:
        print(f"skipped: {why}")
        return 77
    about.build = about.build.resolve()
    about.build.mkdir(parents=True, exist_ok=True)
    if about.server is None:
        if subprocess.run([sys.executable, str(HERE / "edit.py"), str(about.checkout)], check=False).returncode != 0:
            return 1
        run_all.build(about, server=True)
        about.server = about.build / "bin" / "llama-server"
    about.keeper = about.server.parent / "memsaver-keeper"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    run = Run(about)
    try:
        return run.all()
    finally:
        run.close()


if __name__ == "__main__":
    sys.exit(main())
