# SPDX-License-Identifier: MIT
"""Programs that train: each takes a Stopwatch and returns its losses, one number a step."""
import copy
import random

import torch
from torch import nn
from torch.nn import functional as F

import models
from place import (autocast, build, current_stream, device, is_gpu, is_tiny, on, order, pick, pinned_like, record_use, side_stream,
                   tokens)


def finish_step(loss, optimizer):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def train_step(model, optimizer, batch, recompute=False):
    with autocast():
        loss = model.loss(batch, recompute)
    return finish_step(loss, optimizer)


# --- language models ---


def gpt_train(watch):
    """GPT with sequences of any length; every other step recomputes activations in place of keeping them."""
    choose = random.Random(3)
    vocabulary, *rest = pick((32000, 1536, 16, 12, 2048), (64, 32, 2, 2, 64))
    model = build(lambda: models.Gpt(vocabulary, *rest))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for step in watch.steps(4, 24):
        batch = tokens(vocabulary, 6, choose.randrange(*pick((256, 2048), (8, 64))))
        losses.append(train_step(model, optimizer, batch, recompute=step % 2 == 1))
    return losses


def moe_train(watch):
    """A mixture of experts: how many tokens an expert gets depends on the data."""
    choose = random.Random(4)
    vocabulary, *rest = pick((8192, 1024, 6, 16, 1024, 12), (64, 32, 2, 2, 64, 3))
    model = build(lambda: models.Gpt(vocabulary, *rest))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for _ in watch.steps(4, 30):
        batch = tokens(vocabulary, choose.randrange(*pick((4, 17), (1, 3))), choose.randrange(*pick((512, 1024), (8, 16))))
        losses.append(train_step(model, optimizer, batch))
    return losses


class Offload(torch.autograd.graph.saved_tensors_hooks):
    """Keeps what backward needs in pinned host memory. A second stream copies it there and back, beside the work."""

    def __init__(self, model):
        self.stream = side_stream()
        self.smallest_bytes = pick(1 << 20, 1)
        self.weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        super().__init__(self.pack, self.unpack)

    @torch.no_grad()
    def pack(self, tensor):
        if (tensor.is_cpu and is_gpu() or tensor.nbytes < self.smallest_bytes
                or tensor.untyped_storage().data_ptr() in self.weights):
            return tensor
        tensor = tensor.detach()
        order(self.stream, current_stream())
        with on(self.stream):
            host = pinned_like(tensor)
            host.copy_(tensor, non_blocking=True)
        record_use(tensor, self.stream)  # it may be freed here long before the copy runs
        return host, tensor.device

    @torch.no_grad()
    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        host, where = packed
        with on(self.stream):
            tensor = host.to(where, non_blocking=True)  # allocated on the second stream, used on the first
        order(current_stream(), self.stream)
        record_use(tensor, current_stream())
        return tensor


def offload_train(watch):
    """Training that keeps its activations on the host: blocks made on one stream and used on another."""
    choose = random.Random(5)
    vocabulary, *rest = pick((16000, 2048, 12, 16, 1024), (64, 32, 2, 2, 32))
    model = build(lambda: models.Gpt(vocabulary, *rest), torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    offload = Offload(model)
    longest = pick(1024, 16)
    losses = []
    for step in watch.steps(3, 10):
        # The largest comes first: pinned memory is slow to allocate, and cached.
        batch, length = (choose.randrange(4, 9), choose.randrange(longest // 2, longest)) if step else (8, longest - 1)
        batch = tokens(vocabulary, batch, length)
        with offload:
            loss = model.loss(batch)
        losses.append(finish_step(loss, optimizer))
    return losses


class Adapter(nn.Module):
    """A frozen linear layer with a trained correction of low rank."""

    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


def add_adapters(model, rank):
    for weight in model.parameters():
        weight.requires_grad_(False)
    for block in model.blocks:
        block.attention.qkv = Adapter(block.attention.qkv, rank)
        block.mlp.rise, block.mlp.fall = Adapter(block.mlp.rise, rank), Adapter(block.mlp.fall, rank)
    return model


def adapter_tune(watch):
    """Fine-tuning of adapters on a frozen model: sequences of varied lengths, four batches to a step of the optimizer."""
    choose = random.Random(15)
    vocabulary, *rest = pick((32000, 2048, 16, 16, 2048), (64, 32, 2, 2, 64))
    model = build(lambda: add_adapters(models.Gpt(vocabulary, *rest), pick(16, 4)), torch.bfloat16)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-4)
    losses = []
    for _ in watch.steps(2, 8):
        total = torch.zeros((), device=device())
        for _ in range(4):
            length = int(2 ** choose.uniform(*pick((6, 11), (3, 6))))
            loss = model.loss(tokens(vocabulary, max(1, pick(8192, 64) // length), length)) / 4
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    return losses


# --- reinforcement learning ---


@torch.no_grad()
def roll_out(model, batch, answer):
    """Samples answers token by token; returns whole sequences and which of their tokens count: answers end at any length."""
    caches, start, whole, latest = [[] for _ in model.blocks], 0, [batch], batch
    for _ in range(answer):
        with autocast():
            odds = model.logits(model(latest, caches, start)[:, -1]).float().softmax(-1)
        start += latest.shape[1]
        latest = torch.multinomial(odds, 1)
        whole.append(latest)
    ends = torch.randint(max(1, answer // 4), answer + 1, (len(batch), 1)).to(device())
    return torch.cat(whole, dim=1), torch.arange(answer, device=device()) < ends


def answer_odds(model, whole, answer):
    """The logarithm of the probability of each token of the answers."""
    with autocast():
        logits = model.logits(model(whole[:, :-1])[:, -answer:])
    return logits.float().log_softmax(-1).gather(-1, whole[:, -answer:, None]).squeeze(-1)


def rl_loop(watch):
    """Reinforcement learning: answers are sampled with a cache, scored with a frozen copy of the model, and trained on."""
    choose = random.Random(16)
    vocabulary, *rest = pick((16000, 1024, 12, 16, 512), (64, 32, 2, 2, 64))
    model = build(lambda: models.Gpt(vocabulary, *rest))
    frozen = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    losses = []
    for _ in watch.steps(2, 8):
        prompt, answer = choose.randrange(*pick((48, 256), (4, 8))), choose.randrange(*pick((32, 96), (4, 8)))
        whole, counts = roll_out(model, tokens(vocabulary, pick(96, 4), prompt), answer)
        with torch.no_grad():
            before, base = answer_odds(model, whole, answer), answer_odds(frozen, whole, answer)
            reward = (whole[:, prompt:] % 7 == 0).float().sum(1)
            gain = ((reward - reward.mean()) / (reward.std() + 1e-4))[:, None]
        total = torch.zeros((), device=device())
        for part in torch.arange(len(whole)).chunk(2):
            part = part.to(device())
            odds = answer_odds(model, whole[part], answer)
            ratio = (odds - before[part]).exp()
            worth = torch.minimum(ratio * gain[part], ratio.clamp(0.8, 1.2) * gain[part])
            drift = (base[part] - odds).exp() - (base[part] - odds) - 1
            loss = -((worth - 0.02 * drift) * counts[part]).sum() / counts[part].sum()
            total += finish_step(loss, optimizer)
        losses.append(total + reward.mean())
    return losses


# --- images ---


class Detector(nn.Module):
    """Features at three scales, a score and a box for each place of them, and a class for each object."""

    def __init__(self, widths):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, stride=2, padding=1)
        pairs = list(zip(widths, [*widths[1:], widths[-1]]))
        self.levels = nn.ModuleList(nn.ModuleList([models.Residual(a, a), nn.Conv2d(a, b, 3, stride=2, padding=1)]) for a, b in pairs)
        self.heads = nn.ModuleList(nn.Conv2d(b, 5, 3, padding=1) for _, b in pairs[-3:])
        self.classes = nn.Linear(pairs[-3][1], 80)

    def forward(self, x):
        x, features = self.stem(x), []
        for residual, shrink in self.levels:
            x = shrink(residual(x))
            features.append(x)
        return features[-3:]


def overlap(boxes, others):
    """Intersection over union, of every box with every other."""
    low, high = torch.maximum(boxes[:, None, :2], others[:, :2]), torch.minimum(boxes[:, None, 2:], others[:, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area = [(some[:, 2:] - some[:, :2]).prod(-1) for some in (boxes, others)]
    return common / (area[0][:, None] + area[1] - common)


def places_of(features, height, width):
    """A box around each place of the features, in pixels."""
    result = []
    for feature in features:
        rows, columns = feature.shape[-2:]
        y, x = torch.meshgrid(torch.arange(rows, device=device()), torch.arange(columns, device=device()), indexing="ij")
        step = torch.tensor([width / columns, height / rows], device=device())
        corner = torch.stack([x, y], dim=-1).view(-1, 2) * step
        result.append(torch.cat([corner - step, corner + 2 * step], dim=1))
    return torch.cat(result)


def detection_loss(model, images, boxes):
    height, width = images.shape[-2:]
    with autocast():
        features = model(images)
        outputs = torch.cat([head(feature).flatten(2) for head, feature in zip(model.heads, features)], dim=2).float()
    places, loss = places_of(features, height, width), torch.zeros((), device=device())
    for image, own in enumerate(boxes):
        best, which = overlap(places, own).max(dim=1)
        target = (best > 0.3).float()
        score, offset = outputs[image, 0], outputs[image, 1:].t()
        loss = loss + F.binary_cross_entropy_with_logits(score, target) + (
            ((offset - (own[which] - places) / 32).abs().sum(1) * target).sum() / (target.sum() + 1))
        scale = features[0].shape[-1] / width
        crops = []
        for x0, y0, x1, y1 in (own[:8] * scale).long().tolist():  # an object each: as many sizes as objects
            crops.append(features[0][image, :, y0:y1 + 1, x0:x1 + 1].float().square().mean((1, 2)))
        logits = model.classes(torch.stack(crops))
        loss = loss + F.cross_entropy(logits, torch.arange(len(crops), device=device()) % 80)
    return loss / len(boxes)


def detect_train(watch):
    """Object detection: images of many sizes, one to 60 objects in each, and a crop for each object."""
    choose = random.Random(17)
    sizes = pick([(512, 512), (640, 480), (768, 1024), (1024, 768), (896, 896), (480, 992), (1024, 1024), (736, 544)], [(64, 64), (96, 64)])
    model = build(lambda: Detector(pick((64, 128, 256, 512), (32, 32, 32, 32)))).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    losses = []
    for step in watch.steps(len(sizes), 20):  # the warm-up sees each of them: cuDNN takes its time at the first
        height, width = sizes[step] if step < len(sizes) else choose.choice(sizes)
        images = torch.randn(pick(8, 2), 3, height, width, device=device()).contiguous(memory_format=torch.channels_last)
        boxes = []
        for _ in range(len(images)):
            corner = torch.rand(choose.randrange(1, pick(61, 4)), 2) * 0.7
            size = 0.05 + 0.25 * torch.rand(len(corner), 2)
            boxes.append((torch.cat([corner, corner + size], dim=1) * torch.tensor([width, height] * 2)).to(device()))
        losses.append(finish_step(detection_loss(model, images, boxes), optimizer))
    return losses


class Pictures(torch.utils.data.Dataset):
    """Whole batches of pictures as bytes, each batch in a size of its own, as a loader's workers decode them."""

    def __init__(self, count, batch, sizes):
        self.count, self.batch, self.sizes = count, batch, sizes

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        generator = torch.Generator().manual_seed(number)
        size = self.sizes[int(torch.randint(len(self.sizes), (1,), generator=generator))]
        words = torch.randint(2**62, (self.batch, 3, size, size // 8), generator=generator)  # eight bytes each
        return words.view(torch.uint8), torch.randint(1000, (self.batch,), generator=generator)


class Vit(nn.Module):
    def __init__(self, width, layers, heads, patch, longest):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, stride=patch)
        self.places = nn.Parameter(torch.randn(longest, width) * 0.02)
        self.blocks = nn.ModuleList(models.Block(width, heads, models.Mlp(width, 4 * width)) for _ in range(layers))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.places[:x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def loader_train(watch):
    """An image transformer behind a loader with workers and pinned memory; pictures come in many sizes."""
    sizes = pick((192, 256, 320, 384, 448), (32, 64))
    model = build(lambda: Vit(*pick((768, 12, 12, 16, 784), (32, 2, 2, 16, 16))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    pictures = Pictures(pick(34, 3), pick(48, 2), sizes)
    loader = torch.utils.data.DataLoader(pictures, batch_size=None, num_workers=0 if is_tiny() else 4, pin_memory=is_gpu())
    batches, losses = iter(loader), []
    for _ in watch.steps(4, 30):
        images, labels = (part.to(device(), non_blocking=True) for part in next(batches))
        with autocast():
            loss = F.cross_entropy(model(images.float() / 255).float(), labels)
        losses.append(finish_step(loss, optimizer))
    return losses


# --- graphs of nodes ---


class GraphAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.values, self.scores = nn.Linear(width, width), nn.Linear(2 * width // heads, 1)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, source, target):
        nodes, width = x.shape
        values = self.values(x).view(nodes, self.heads, width // self.heads)
        pairs = torch.cat([values[source], values[target]], dim=-1)
        weight = F.leaky_relu(self.scores(pairs), 0.2).clamp(max=10).exp()
        total = torch.zeros(nodes, self.heads, 1, device=x.device).index_add(0, target, weight)
        out = torch.zeros_like(values).index_add(0, target, weight * values[source])
        return self.norm(x + F.elu(out / (total + 1e-6)).reshape(nodes, width))


class Gnn(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.layers = nn.ModuleList(GraphAttention(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, 16)

    def forward(self, x, source, target):
        for layer in self.layers:
            x = layer(x, source, target)
        return self.head(x)


def gnn_train(watch):
    """Graph attention on subgraphs of heavy-tailed size: most are small, some are fifty times as large."""
    choose = random.Random(18)
    width, *rest = pick((256, 4, 3), (16, 2, 2))
    model = build(lambda: Gnn(width, *rest))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in watch.steps(4, 40):
        nodes = int(pick(4000, 20) * min(25, choose.paretovariate(0.8)))
        edges = nodes * choose.randrange(3, 8)
        source, target = (torch.randint(nodes, (edges,)).to(device()) for _ in range(2))
        features, labels = torch.randn(nodes, width, device=device()), torch.randint(16, (nodes,)).to(device())
        losses.append(finish_step(F.cross_entropy(model(features, source, target), labels), optimizer))
    return losses


PROGRAMS = (gpt_train, moe_train, offload_train, adapter_tune, rl_loop, detect_train, loader_train, gnn_train)
