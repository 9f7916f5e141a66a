# SPDX-License-Identifier: MIT
"""Programs that infer: each takes a Stopwatch and returns its results, one number a step."""
import math
import random

import torch
from torch.nn import functional as F

import models
from place import (Graph, build, current_stream, device, graph_pool, on, order, pick, record_use, side_stream, to_pinned,
                   tokens)


class Session:
    """A batch of prompts that is being answered: its key/value caches grow by one token at a time."""

    def __init__(self, model, batch, length, answer):
        self.left = answer
        self.caches = [[] for _ in model.blocks]
        self.tokens = tokens(model.tokens.num_embeddings, batch, length)
        self.start = 0

    def advance(self, model):
        hidden = model(self.tokens, self.caches, self.start)
        self.start += self.tokens.shape[1]
        logits = model.logits(hidden[:, -1])
        self.tokens = logits.argmax(-1, keepdim=True)
        self.left -= 1
        return logits.float().logsumexp(-1).mean()


@torch.no_grad()
def llm_serve(watch):
    """A language model that answers up to four batches at a time, of any size; new ones come as old ones end."""
    choose = random.Random(1)
    model = build(lambda: models.Gpt(*pick((32000, 2048, 24, 16, 4096), (64, 32, 2, 2, 4096))), torch.bfloat16)
    sessions, losses = [], []
    for _ in watch.steps(20, 120):
        if len(sessions) < 4:
            length = choose.randrange(64, pick(2048, 96))
            batch = min(choose.randrange(1, 33), max(1, pick(16384, 256) // length))
            sessions.append(Session(model, batch, length, choose.randrange(16, 64)))
        scores = [session.advance(model) for session in sessions]
        losses.append(torch.stack(scores).mean())
        sessions = [session for session in sessions if session.left]
    return losses


# --- beams ---


class Beams:
    """One batch of prompts, each with several beams. Every token reorders the caches by the beams that go on."""

    def __init__(self, model, batch, width, length, answer):
        self.batch, self.width, self.left, self.half = batch, width, answer, answer // 2
        self.caches = [[] for _ in model.blocks]
        hidden = model(tokens(model.tokens.num_embeddings, batch, length), self.caches)
        self.start = length
        scores, chosen = self.log_odds(model, hidden).topk(width, dim=-1)
        self.take(torch.arange(batch, device=device()).repeat_interleave(width))
        self.scores, self.tokens = scores, chosen.view(-1, 1)

    @staticmethod
    def log_odds(model, hidden):
        return model.logits(hidden[:, -1]).float().log_softmax(-1)

    def take(self, rows):
        for cache in self.caches:
            cache[:] = [part.index_select(0, rows) for part in cache]

    def advance(self, model):
        odds = self.log_odds(model, model(self.tokens, self.caches, self.start))
        self.start += 1
        self.left -= 1
        width = max(2, self.width // 2) if self.left == self.half else self.width  # the worse half ends here
        candidates = (self.scores.view(-1, 1) + odds).view(self.batch, -1)
        self.scores, flat = candidates.topk(width, dim=-1)
        beam, self.tokens = flat // odds.shape[1], (flat % odds.shape[1]).view(-1, 1)
        rows = (torch.arange(self.batch, device=device())[:, None] * self.width + beam).view(-1)
        self.width = width
        self.take(rows)
        return self.scores.mean()


@torch.no_grad()
def beam_search(watch):
    """Beam search: batches of prompts with 2 to 16 beams, whose caches are copied in another order at every token."""
    choose = random.Random(11)
    model = build(lambda: models.Gpt(*pick((32000, 1536, 16, 12, 2048), (64, 32, 2, 2, 128))), torch.bfloat16)
    beams, losses = [], []
    for _ in watch.steps(20, 140):
        if len(beams) < 2:
            width = choose.choice((2, 4, 8, 16))
            batch = max(1, pick(96, 8) // width)
            beams.append(Beams(model, batch, width, choose.randrange(*pick((96, 768), (8, 16))), choose.randrange(16, 48)))
        losses.append(torch.stack([one.advance(model) for one in beams]).mean())
        beams = [one for one in beams if one.left]
    return losses


# --- graphs ---


class Slots:
    """Key/value caches of a fixed size for `count` sequences, and graphs that add a token to the first 1, 2, 4 ... of them."""

    def __init__(self, model, count, length):
        width, heads = model.tokens.weight.shape[1], model.blocks[0].attention.heads
        shape = (len(model.blocks), 2, count, heads, length, width // heads)
        self.model, self.count, self.length = model, count, length
        self.cache = torch.zeros(shape, dtype=torch.bfloat16, device=device())
        self.tokens = torch.zeros(count, dtype=torch.long, device=device())
        self.places = torch.zeros(count, dtype=torch.long, device=device())
        pool = graph_pool()
        self.graphs = {}
        batch = count
        while batch:  # the largest first: the others fit into its memory
            self.graphs[batch] = Graph(lambda batch=batch: self.decode(batch), pool)
            batch //= 2

    def decode(self, batch):
        model, places = self.model, self.places[:batch]
        x = model.tokens(self.tokens[:batch]) + model.places(places)
        seen = (torch.arange(self.length, device=device()) <= places[:, None])[:, None, None]
        at = places.view(batch, 1, 1, 1)
        for number, block in enumerate(model.blocks):
            attention = block.attention
            q, k, v = attention.qkv(block.norm1(x)).view(batch, 3, attention.heads, -1).unbind(1)
            keys, values = self.cache[number, :, :batch]
            keys.scatter_(2, at.expand(-1, attention.heads, -1, k.shape[-1]), k[:, :, None])
            values.scatter_(2, at.expand(-1, attention.heads, -1, v.shape[-1]), v[:, :, None])
            y = F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=seen)
            x = x + attention.out(y.reshape(batch, -1))
            x = x + block.mlp(block.norm2(x))
        logits = model.logits(model.norm(x))
        self.tokens[:batch] = logits.argmax(-1)
        self.places[:batch] += 1
        return logits.float().logsumexp(-1).mean()

    def fill(self, slot, length):
        """Reads a prompt, eagerly, into a slot."""
        caches = [[] for _ in self.model.blocks]
        hidden = self.model(tokens(self.model.tokens.num_embeddings, 1, length), caches)
        for number, (keys, values) in enumerate(caches):
            self.cache[number, 0, slot, :, :length] = keys[0]
            self.cache[number, 1, slot, :, :length] = values[0]
        self.tokens[slot] = self.model.logits(hidden[0, -1]).argmax()
        self.places[slot] = length


@torch.no_grad()
def graph_serve(watch):
    """CUDA graphs of several batch sizes answer, while prompts of mixed lengths are read eagerly."""
    choose = random.Random(12)
    model = build(lambda: models.Gpt(*pick((32000, 2048, 16, 16, 1024), (64, 32, 2, 2, 64))), torch.bfloat16)
    slots = Slots(model, *pick((32, 1024), (4, 64)))
    for slot in range(slots.count):
        slots.fill(slot, choose.randrange(*pick((32, 512), (4, 16))))
    losses = []
    for _ in watch.steps(10, 60):
        for _ in range(choose.randrange(1, 5)):
            slots.fill(choose.randrange(slots.count), choose.randrange(*pick((32, 960), (4, 40))))
        batch = choose.choice(list(slots.graphs))
        scores = [slots.graphs[batch].replay().clone() for _ in range(8)]
        slots.places.clamp_(max=slots.length - 9)
        losses.append(torch.stack(scores).mean())
    return losses


# --- images ---


@torch.no_grad()
def unet_infer(watch):
    """A convolutional U-Net, as in diffusion models, on images of many sizes."""
    choose = random.Random(2)
    shapes = pick([(1, 512, 512), (8, 512, 512), (2, 768, 768), (4, 768, 512), (1, 1024, 1024), (3, 1024, 1024),
                   (16, 256, 256), (2, 640, 896)], [(1, 16, 16), (2, 16, 24)])
    model = build(lambda: models.Unet(*pick((), ((32, 64),))), torch.bfloat16).to(memory_format=torch.channels_last)
    losses = []
    for step in watch.steps(len(shapes), 20):  # the warm-up sees each of them: cuDNN takes its time at the first
        batch, height, width = shapes[step] if step < len(shapes) else choose.choice(shapes)
        image = torch.randn(batch, 4, height, width, device=device(), dtype=torch.bfloat16)
        losses.append(model(image.contiguous(memory_format=torch.channels_last)).float().square().mean())
    return losses


# --- models that come and go ---


def host_copy(module):
    return {name: to_pinned(tensor) for name, tensor in module.state_dict().items()}


@torch.no_grad()
def stream_infer(watch):
    """A model in host memory: a second stream brings the weights of the next layer while the current one runs."""
    choose = random.Random(13)
    width, heads, layers = pick((3072, 24, 12), (32, 2, 3))
    block = build(lambda: models.Block(width, heads, models.Mlp(width, 4 * width)), torch.bfloat16)
    layers = [host_copy(block) for _ in range(layers)]
    side, main = side_stream(), current_stream()

    def fetch(host):
        with on(side):
            return {name: tensor.to(device(), non_blocking=True) for name, tensor in host.items()}

    losses = []
    for _ in watch.steps(3, 14):
        batch, length = choose.randrange(*pick((8, 25), (1, 3))), choose.randrange(*pick((256, 1024), (4, 8)))
        x = torch.randn(batch, length, width, device=device(), dtype=torch.bfloat16)
        ready = fetch(layers[0])
        for number in range(len(layers)):
            order(main, side)
            weights, ready = ready, fetch(layers[number + 1]) if number + 1 < len(layers) else None
            x = torch.func.functional_call(block, weights, (x,)) / math.sqrt(2)
            for tensor in weights.values():  # freed here, long before the layer runs
                record_use(tensor, main)
        losses.append(x.float().square().mean())
    return losses


@torch.no_grad()
def model_swap(watch):
    """Four models of different sizes in host memory take turns on the GPU; two of them fit."""
    choose = random.Random(14)
    shapes = pick([(2048, 8, 16), (1536, 16, 12), (2560, 6, 20), (1024, 24, 16)], [(32, 2, 2), (64, 1, 2)])
    vocabulary, longest = pick((32000, 1024), (64, 32))
    hosts = [host_copy(build(lambda shape=shape: models.Gpt(vocabulary, *shape, longest), torch.bfloat16)) for shape in shapes]
    resident, losses = {}, []
    for _ in watch.steps(6, 24):
        number = choose.randrange(len(shapes))
        if number not in resident:
            while len(resident) > 1:
                del resident[next(iter(resident))]
            with torch.device("meta"):
                model = models.Gpt(vocabulary, *shapes[number], longest)
            weights = {name: tensor.to(device(), non_blocking=True) for name, tensor in hosts[number].items()}
            model.load_state_dict(weights, assign=True)
            resident[number] = model
        model = resident[number]
        batch = tokens(vocabulary, choose.randrange(*pick((4, 33), (1, 3))), choose.randrange(*pick((128, 1024), (8, 16))))
        losses.append(model.logits(model(batch)[:, -1]).float().logsumexp(-1).mean())
        del model
    return losses


PROGRAMS = (llm_serve, beam_search, graph_serve, unet_infer, stream_infer, model_swap)
