# SPDX-License-Identifier: MIT
"""The networks of programs.py: ordinary PyTorch code with random weights."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cache=None, is_causal=True):
        """`cache` is a list with the keys and values of earlier tokens; torch.cat grows it."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k = torch.cat([cache[0], k], dim=2) if cache else k.contiguous()
            v = torch.cat([cache[1], v], dim=2) if cache else v.contiguous()
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal and length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.rise = nn.Linear(width, hidden, bias=False)
        self.fall = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.fall(F.gelu(self.rise(x)))


class Experts(nn.Module):
    """A mixture of experts: each token goes to the two experts with the highest scores, so batches depend on the data."""

    def __init__(self, width, hidden, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Mlp(width, hidden) for _ in range(experts))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, choices = self.router(flat).float().softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, place = (choices == number).nonzero(as_tuple=True)
            if token.numel():
                y = expert(flat[token]) * weights[token, place, None]
                out = out.index_add(0, token, y.to(out.dtype))
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self, width, heads, mlp):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = mlp

    def forward(self, x, cache=None):
        x = x + self.attention(self.norm1(x), cache)
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, longest, experts=0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(
            Block(width, heads, Experts(width, 4 * width, experts) if experts else Mlp(width, 4 * width))
            for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, tokens, caches=None, start=0, recompute=False):
        """Returns the last hidden states; logits() computes the logits of a part of them."""
        x = self.tokens(tokens) + self.places(torch.arange(start, start + tokens.shape[1], device=tokens.device))
        for number, block in enumerate(self.blocks):
            if recompute:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, caches[number] if caches else None)
        return self.norm(x)

    def logits(self, x):
        return F.linear(x, self.tokens.weight)

    def loss(self, tokens, recompute=False):
        logits = self.logits(self(tokens[:, :-1], recompute=recompute))
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2 = nn.GroupNorm(32, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Unet(nn.Module):
    """A U-Net as in diffusion models: down, across with attention, and up again with skip connections."""

    def __init__(self, widths=(128, 256, 512, 512), channels=4):
        super().__init__()
        self.stem = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.down, self.shrink, self.up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        at, kept = widths[0], []
        for level, width in enumerate(widths):
            self.down.append(nn.ModuleList([Residual(at, width), Residual(width, width)]))
            kept += [width, width]
            at = width
            if level + 1 < len(widths):
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
        self.middle = Residual(at, at)
        self.attention = Attention(at, at // 64)
        for width in reversed(widths):
            pair = []
            for _ in range(2):
                pair.append(Residual(at + kept.pop(), width))
                at = width
            self.up.append(nn.ModuleList(pair))
        self.norm = nn.GroupNorm(32, at)
        self.head = nn.Conv2d(at, channels, 3, padding=1)

    def forward(self, x):
        x, kept = self.stem(x), []
        for level, pair in enumerate(self.down):
            for block in pair:
                x = block(x)
                kept.append(x)
            if level < len(self.shrink):
                x = self.shrink[level](x)
        x = self.middle(x)
        batch, width, height, length = x.shape
        y = self.attention(x.flatten(2).transpose(1, 2), is_causal=False)
        x = x + y.transpose(1, 2).reshape(batch, width, height, length)
        for level, pair in enumerate(self.up):
            if level:
                x = F.interpolate(x, scale_factor=2, mode="nearest")
            for block in pair:
                x = block(torch.cat([x, kept.pop()], dim=1))
        return self.head(F.silu(self.norm(x)))
