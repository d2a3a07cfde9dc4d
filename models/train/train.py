#!/usr/bin/env python3
"""Trains the models in models/ on a 2 MiB sample of TinyStories; writes GGUF.

    train.py TEXT WORK OUT [--only NAME] [--steps N | --minutes M] [--from FOLDER] [--export]

TEXT is the sample (its SHA-256 is checked), WORK a folder for the vocabulary and
checkpoints, OUT the folder that NAME.gguf goes to, all in F32 (`headrow quantize`
rounds it). A run that was interrupted continues from its checkpoint. --from begins
with the weights of FOLDER/NAME.gguf and trains them a little further: all in fp32, at
a tenth of the rates, on the segmentation that inference uses. Of Q8_0 weights, the
fraction of a step that rounding took is drawn anew first. --export writes the GGUF of a
checkpoint, finished or not, and trains nothing.
"""
import argparse, hashlib, json, math, os, random, struct, sys, time
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

# Fresh memory can cost more than the arithmetic: let malloc keep what it has. On a
# machine that is busy with other work, threads that wait must not spin.
ENV = {"MALLOC_MMAP_THRESHOLD_": "8589934592",
       "MALLOC_TRIM_THRESHOLD_": "17179869184",
       "MALLOC_TOP_PAD_": "268435456",
       "MALLOC_ARENA_MAX": "1",
       "OMP_WAIT_POLICY": "passive",
       "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16384"}
if __name__ == "__main__" and any(os.environ.get(k) != v for k, v in ENV.items()):
    os.environ.update(ENV)
    os.execv(sys.executable, [sys.executable] + sys.argv)

import numpy as np
import sentencepiece
import torch
import torch.nn.functional as F

SHA256 = "5352b299dcb1a32898b2d779b145b5a05f3e1265953fd21c264c9f9f9c9ae33d"
HELD_OUT = 20                  # every 20th story is never trained on
VOCAB, UNK, BOS, EOS = 1024, 0, 1, 2
EPS, ROPE_BASE = 1e-5, 10000.0
PART_SCORES = 1 << 21          # scores a head that a thread has in hand at once
THREADS = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count()))

SMALL = dict(arch="transformer", dim=64, layers=3, heads=4, kv_heads=4, ffn=256,
             context=256, norm="pre", act="gelu_tanh", scale=1.0,
             dropout=0.0, alpha=0.0, batch=2048, steps=1800)
MODELS = {
    "builtin": dict(arch="llama", dim=192, layers=5, heads=6, kv_heads=2, ffn=384,
                    context=1024, norm="pre", act="silu", position="rope", scale=1.0,
                    dropout=0.1, alpha=0.1, batch=4096, steps=3000),
    "transformer-2017": dict(SMALL, norm="post", act="relu", position="sinusoidal",
                             scale=8.0),
    "gpt2": dict(SMALL, arch="gpt2", position="learned"),
    "alibi": dict(SMALL, position="alibi"),
    "rope": dict(SMALL, position="rope"),
}


# ---------------------------------------------------------------- the text

def stories(path):
    """The sample's whole stories: (trained on, held out)."""
    data = open(path, "rb").read()
    if hashlib.sha256(data).hexdigest() != SHA256:
        sys.exit(f"{path}: not the expected text (SHA-256 differs)")
    all_ = [s.strip() for s in data.decode("utf-8", "replace").split("<|endoftext|>")]
    all_ = [s for s in all_[:-1] if s]          # the last one is cut
    held = all_[HELD_OUT - 1::HELD_OUT]
    known = set(held)
    return [s for s in all_ if s not in known], held


def vocabulary(train, work):
    """Byte-fallback BPE, learned from the training stories. A newline is the
    byte token. The space SentencePiece puts before a text is put there by
    encode(), so that the lines inside a story are learned without one."""
    path = os.path.join(work, "vocab.model")
    if not os.path.exists(path):
        lines = [line for s in train for line in (" " + s).split("\n") if line]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=path[:-len(".model")],
            model_type="bpe", vocab_size=VOCAB, byte_fallback=True,
            character_coverage=0.9999, unk_id=UNK, bos_id=BOS, eos_id=EOS, pad_id=-1,
            normalization_rule_name="identity", remove_extra_whitespaces=False,
            add_dummy_prefix=False, num_threads=1, minloglevel=1)
    return sentencepiece.SentencePieceProcessor(model_file=path)


def encode(sp, text, alpha=0.0):
    if alpha:
        return sp.encode(" " + text, enable_sampling=True, nbest_size=-1, alpha=alpha)
    return sp.encode(" " + text)


def decode(sp, ids):
    return sp.decode(ids)[1:]


def batches(rows, context, tokens=4096, shuffle=True):
    """One story a row, rows of like length together: (inputs, targets), the
    targets past a story's end being -1. Widths are multiples of 32, so that
    there are few shapes: oneDNN compiles its products for each."""
    rows = [r[:context + 1] for r in rows]
    rows.sort(key=lambda r: len(r) * (random.uniform(0.95, 1.05) if shuffle else 1))
    out = []
    while rows:
        width = -(-(len(rows[-1]) - 1) // 32) * 32
        n = max(1, tokens // width)
        out.append(rows[-n:])
        del rows[-n:]
    if shuffle:
        random.shuffle(out)
    for b in out:
        width = -(-(max(map(len, b)) - 1) // 32) * 32
        t = torch.full((len(b), width + 1), -1)
        for r, ids in zip(t, b):
            r[:len(ids)] = torch.tensor(ids)
        yield t[:, :-1].clamp(min=0).contiguous(), t[:, 1:].contiguous()


# --------------------------------------------------------------- the model

class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        r = torch.rsqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2
                        / x.shape[-1] + EPS)
        n = x * r
        ctx.save_for_backward(n, r, w)
        return n * w

    @staticmethod
    def backward(ctx, g):
        n, r, w = ctx.saved_tensors
        gn = g * n
        gw = gn.sum(dim=tuple(range(g.dim() - 1)))
        m = (gn @ w).unsqueeze(-1) / n.shape[-1]
        return (g * w - n * m) * r, gw


class Dropout:
    """Dropout from a pool of masks: drawing fresh ones is slow on a CPU."""
    def __init__(self, p, size=1 << 23):
        self.p, self.pool = p, None
        if p:
            self.pool = (torch.rand(size) >= p).float() / (1 - p)

    def __call__(self, x, on):
        if not on or not self.p:
            return x
        n = x.numel()
        at = random.randrange(self.pool.numel() - n)
        return x * self.pool[at:at + n].view(x.shape)


class Model(torch.nn.Module):
    """Weights are kept under their GGUF names."""
    def __init__(self, c, dropout=0.0):
        super().__init__()
        self.c, self.drop = c, Dropout(dropout)
        d, f, kv = c["dim"], c["ffn"], c["dim"] // c["heads"] * c["kv_heads"]
        self.biased = c["arch"] != "llama"
        self.p = {}
        self.add("token_embd.weight",
                 torch.randn(VOCAB, d) * (0.02 if c["scale"] == 1 else d ** -0.5))
        if c["position"] == "learned":
            self.add("position_embd.weight", torch.randn(c["context"], d) * 0.02)
        for i in range(c["layers"]):
            b = f"blk.{i}."
            self.linear(b + "attn_q", d, d)
            self.linear(b + "attn_k", d, kv)
            self.linear(b + "attn_v", d, kv)
            self.linear(b + "attn_output", d, d, 0.5)
            if not self.biased:
                self.linear(b + "ffn_gate", d, f)
            self.linear(b + "ffn_up", d, f)
            self.linear(b + "ffn_down", f, d, 0.5)
            pre = c["norm"] == "pre"
            self.norm_weight(b + ("attn_norm" if pre else "attn_output_norm"), d)
            self.norm_weight(b + ("ffn_norm" if pre else "layer_output_norm"), d)
        if c["norm"] == "pre":
            self.norm_weight("output_norm", d)

    def add(self, name, value):
        self.p[name] = torch.nn.Parameter(value)
        self.register_parameter(name.replace(".", "_"), self.p[name])

    def linear(self, name, n_in, n_out, gain=1.0):
        self.add(name + ".weight", torch.randn(n_out, n_in) * gain * n_in ** -0.5)
        if self.biased:
            self.add(name + ".bias", torch.zeros(n_out))

    def norm_weight(self, name, d):
        self.add(name + ".weight", torch.ones(d))
        if self.biased:
            self.add(name + ".bias", torch.zeros(d))

    def norm(self, x, name):
        w = self.p[name + ".weight"]
        if self.biased:
            return F.layer_norm(x, w.shape, w, self.p[name + ".bias"], EPS)
        return RMSNorm.apply(x, w)

    def proj(self, x, *names):
        """Several matrices applied to one input in one product."""
        w = [self.p[n + ".weight"] for n in names]
        w = w[0] if len(w) == 1 else torch.cat(w)
        if not self.biased:
            return F.linear(x, w)
        b = [self.p[n + ".bias"] for n in names]
        return F.linear(x, w, b[0] if len(b) == 1 else torch.cat(b))

    def attention(self, x, b):
        c, (n, t, d) = self.c, x.shape
        h, g = c["heads"], c["kv_heads"]
        w = d // h
        qkv = self.proj(x, b + "attn_q", b + "attn_k", b + "attn_v").view(n, t, h + 2 * g, w)
        if c["position"] == "rope":     # pairs (2i, 2i+1)
            at = torch.arange(t)[:, None] * ROPE_BASE ** (-torch.arange(0, w, 2) / w)
            turn = torch.polar(torch.ones_like(at), at)[:, None]
            qk = torch.view_as_complex(qkv[:, :, :h + g].reshape(n, t, h + g, w // 2, 2))
            qk = torch.view_as_real(qk * turn).view(n, t, h + g, w)
        else:
            qk = qkv[:, :, :h + g]
        # the heads that share one key are stacked as rows of one product
        q = (qk[:, :, :h] * w ** -0.5).view(n, t, g, h // g, w).permute(0, 2, 3, 1, 4)
        k = qk[:, :, h:].permute(0, 2, 3, 1)
        v = qkv[:, :, h + g:].permute(0, 2, 1, 3)
        mask = torch.full((t, t), -math.inf).triu(1).expand(h, t, t)
        if c["position"] == "alibi":
            slope = 2.0 ** (-8.0 / h * torch.arange(1, h + 1))
            mask = mask - slope[:, None, None] * (torch.arange(t)[:, None] - torch.arange(t))
        s = (q.reshape(n, g, -1, w) @ k).add_(mask.reshape(g, -1, t))
        y = (torch.softmax(s, -1) @ v).view(n, h, t, w)
        return self.proj(y.transpose(1, 2).reshape(n, t, d), b + "attn_output")

    def feed_forward(self, x, b):
        if self.biased:
            act = F.relu if self.c["act"] == "relu" else lambda v: F.gelu(v, approximate="tanh")
            return self.proj(act(self.proj(x, b + "ffn_up")), b + "ffn_down")
        gate, up = self.proj(x, b + "ffn_gate", b + "ffn_up").chunk(2, -1)
        return self.proj(F.silu(gate) * up, b + "ffn_down")

    def forward(self, ids):
        c, t, on = self.c, ids.shape[1], self.training
        x = self.p["token_embd.weight"][ids] * c["scale"]
        if c["position"] == "learned":
            x = x + self.p["position_embd.weight"][:t]
        if c["position"] == "sinusoidal":
            d = c["dim"]
            at = torch.arange(t)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
            x = x + torch.stack([at.sin(), at.cos()], -1).view(t, d)
        x = self.drop(x, on)
        for i in range(c["layers"]):
            b = f"blk.{i}."
            if c["norm"] == "pre":
                x = x + self.drop(self.attention(self.norm(x, b + "attn_norm"), b), on)
                x = x + self.drop(self.feed_forward(self.norm(x, b + "ffn_norm"), b), on)
            else:
                x = self.norm(x + self.drop(self.attention(x, b), on), b + "attn_output_norm")
                x = self.norm(x + self.drop(self.feed_forward(x, b), on), b + "layer_output_norm")
        if c["norm"] == "pre":
            x = self.norm(x, "output_norm")
        with torch.autocast("cpu", enabled=False):
            return F.linear(x.float(), self.p["token_embd.weight"])


def loss_sum(model, x, y, ends=True):
    logits = model(x)
    if not ends:
        y = y.masked_fill(y == EOS, -1)
    return F.cross_entropy(logits.view(-1, VOCAB), y.view(-1), ignore_index=-1, reduction="sum")


@torch.no_grad()
def nats_per_byte(model, sp, texts, ends=False):
    """Each story alone: <s>, then its tokens (and </s> if `ends`). A story
    longer than the model's context is counted as far as that goes."""
    model.eval()
    rows, size, c = [], 0, model.c["context"]
    for s in texts:
        ids = encode(sp, s)
        rows.append(([BOS] + ids + [EOS])[:c + 1])
        size += len(s.encode()) if len(ids) <= c else len(decode(sp, ids[:c]).encode())
    total = sum(loss_sum(model, x, y, ends).item() for x, y in batches(rows, c, shuffle=False))
    model.train()
    return total / size


@torch.no_grad()
def sample(model, temperature, seed, limit):
    torch.manual_seed(seed)
    model.eval()
    ids = [BOS]
    while len(ids) <= limit:
        p = torch.softmax(model(torch.tensor([ids]))[0, -1] / temperature, -1)
        ids.append(int(torch.multinomial(p, 1)))
        if ids[-1] == EOS:
            break
    return ids[1:]


def repeats(text, n=8):
    """Whether a phrase of n words occurs twice."""
    words = text.split()
    phrases = [tuple(words[i:i + n]) for i in range(len(words) - n + 1)]
    return len(phrases) != len(set(phrases))


# ---------------------------------------------------------------- training

LR_MUON, LR_ADAM, WARMUP = 0.015, 3e-3, 100
FURTHER, FURTHER_STEPS = 0.1, 60        # of the rates, for --from


class Optimizer:
    """Muon for the matrices inside the blocks, AdamW for everything else."""
    def __init__(self, model, lr_muon, lr_adam, decay=0.1):
        self.lr, self.decay = lr_muon, decay
        inner = [(n, p) for n, p in model.p.items() if p.dim() == 2 and n.startswith("blk.")]
        ids = {id(p) for _, p in inner}
        self.groups = {}
        for _, p in inner:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.momentum = {s: torch.zeros(len(g), *s) for s, g in self.groups.items()}
        rest = [p for p in model.p.values() if id(p) not in ids]
        self.adam = torch.optim.AdamW(
            [dict(params=[p for p in rest if p.dim() == 2], weight_decay=decay),
             dict(params=[p for p in rest if p.dim() == 1], weight_decay=0.0)],
            lr=lr_adam, betas=(0.9, 0.98), eps=1e-10)
        self.lr_adam = lr_adam

    @torch.no_grad()
    def step(self, factor):
        for g in self.adam.param_groups:
            g["lr"] = self.lr_adam * factor
        self.adam.step()
        for shape, params in self.groups.items():
            g = torch.stack([p.grad for p in params])
            m = self.momentum[shape].lerp_(g, 0.05)
            u = g.lerp(m, 0.95)
            wide = shape[0] <= shape[1]
            u = u if wide else u.transpose(1, 2)
            u = (u / (u.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
            for _ in range(5):          # Newton-Schulz: towards the nearest orthogonal matrix
                a = u @ u.transpose(1, 2)
                u = 3.4445 * u + (-4.7750 * a + 2.0315 * a @ a) @ u
            u = (u if wide else u.transpose(1, 2)).float()
            lr = self.lr * factor
            for p, v in zip(params, u):
                p.mul_(1 - lr * self.decay).add_(v, alpha=-lr * max(1, shape[0] / shape[1]) ** 0.5)

    def state(self):
        return dict(adam=self.adam.state_dict(), momentum=self.momentum)

    def load(self, s):
        self.adam.load_state_dict(s["adam"])
        self.momentum = s["momentum"]


def train(name, sp, texts, held, work, steps, minutes, start):
    """Trains for `steps` steps, or for `minutes` of wall-clock time; on from the weights
    `start`, or from new ones where it is None."""
    c, rate = MODELS[name], FURTHER if start else 1.0
    path = os.path.join(work, name + ".pt")
    torch.manual_seed(1)
    random.seed(1)
    model = Model(c, c["dropout"])
    if start:
        load(model, start)
    opt = Optimizer(model, LR_MUON * rate, LR_ADAM * rate)
    average = {n: p.detach().clone() for n, p in model.p.items()}
    step, spent, epoch = 0, 0.0, 0
    if os.path.exists(path):
        s = torch.load(path)
        load(model, s["weights"])
        opt.load(s["opt"])
        average, step, spent, epoch = s["average"], s["step"], s["spent"], s["epoch"]
        random.seed(step)
        print(f"{name}: continuing at step {step}, {spent / 60:.1f} min", flush=True)
    last, saved, shown, run = time.time(), spent, step, []

    def done():
        return min(1.0, spent / (60 * minutes) if minutes else step / steps)

    def save():
        torch.save(dict(weights=dict(model.p), average=average, opt=opt.state(), step=step,
                        spent=spent, epoch=epoch), path + ".new")
        os.replace(path + ".new", path)

    def gradient(x, y, n):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not start, cache_enabled=False):
            loss = loss_sum(model, x, y) / n
        loss.backward()
        return loss.item()

    # Threads that each take rows wait for one another once a step, not once an operation.
    pool = ThreadPoolExecutor(THREADS)
    while done() < 1:
        # the last part sees the segmentation that inference will use
        alpha = c["alpha"] if done() < 0.75 and not start else 0.0
        rows = [[BOS] + encode(sp, s, alpha if random.random() < 0.5 else 0.0) + [EOS]
                for s in texts]
        for x, y in batches(rows, c["context"], c["batch"]):
            n = int((y >= 0).sum())
            part = max(1, min(-(-len(x) // THREADS), PART_SCORES // x.shape[1] ** 2))
            model.zero_grad(set_to_none=True)
            loss = sum(pool.map(gradient, x.split(part), y.split(part), repeat(n)))
            fall = 0.51 + 0.49 * math.cos(math.pi * done())
            opt.step(min(1.0, (step + 1) / WARMUP) * fall)
            keep = min(0.995, (step + 1) / (step + 10))
            with torch.no_grad():
                torch._foreach_mul_(list(average.values()), keep)
                torch._foreach_add_(list(average.values()), list(model.p.values()), alpha=1 - keep)
            step += 1
            now = time.time()
            spent, last = spent + now - last, now
            run.append(loss)
            if spent - saved > 600 or done() == 1:
                save()
                ema = Model(c)
                load(ema, average)
                print(f"{name}: step {step} epoch {epoch} {spent / 60:.1f} min, "
                      f"{(spent - saved) / (step - shown):.2f} s a step, "
                      f"train {np.mean(run):.3f} nats a token, held-out "
                      f"{nats_per_byte(ema, sp, held):.4f} nats a byte", flush=True)
                saved, shown, run = spent, step, []
            if done() == 1:
                break
        epoch += 1
    return average


def load(model, weights):
    with torch.no_grad():
        for n, p in model.p.items():
            p.copy_(weights[n])


# -------------------------------------------------------------------- GGUF

F32, F16, Q8_0 = 0, 1, 8


def widened(data, at, kind, count, draw):
    """The values of a tensor in fp32; of Q8_0, any that would be rounded to what is there."""
    if kind == Q8_0:               # blocks of 32: an fp16 scale, int8 values
        b = np.frombuffer(data, [("scale", "<f2"), ("q", "i1", 32)], count // 32, at)
        steps = b["q"] + draw.uniform(-0.5, 0.5, b["q"].shape).astype(np.float32)
        return b["scale"].astype(np.float32)[:, None] * steps
    if kind not in (F32, F16):
        sys.exit(f"a tensor has type {kind}, expected F32, F16 or Q8_0")
    return np.frombuffer(data, ("<f4", "<f2")[kind], count, at).astype(np.float32)


def read_gguf(path):
    """Metadata and weights of a file that write_gguf has written, or one rounded from it."""
    data, at, draw = open(path, "rb").read(), 4, np.random.default_rng(1)

    def take(form):
        nonlocal at
        v = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return v[0] if len(v) == 1 else v

    def text():
        n = take("Q")
        return take(f"{n}s").decode()

    def read(kind):
        if kind == 9:
            kind, n = take("IQ")
            return [read(kind) for _ in range(n)]
        return text() if kind == 8 else take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])

    version, tensors, keys = take("IQQ")
    if data[:4] != b"GGUF" or version != 3:
        sys.exit(f"{path}: not a GGUF file of version 3")
    meta = {}
    for _ in range(keys):
        key = text()
        meta[key] = read(take("I"))
    shapes = []
    for _ in range(tensors):
        name, dims = text(), take("I")
        shapes.append((name, [take("Q") for _ in range(dims)][::-1], *take("IQ")))
    start, weights = -(-at // 32) * 32, {}
    for name, shape, kind, offset in shapes:
        w = widened(data, start + offset, kind, math.prod(shape), draw)
        w = torch.from_numpy(w).view(*shape)
        if "attn_qkv" in name:
            weights.update((name.replace("qkv", n), part) for n, part in zip("qkv", w.chunk(3)))
        else:
            weights[name] = w
    return meta, weights


def weights_of(path, sp):
    """The weights of a file whose vocabulary is ours."""
    meta, weights = read_gguf(path)
    if (meta["tokenizer.ggml.tokens"] != [sp.id_to_piece(i) for i in range(VOCAB)] or
            meta["tokenizer.ggml.scores"] != [sp.get_score(i) for i in range(VOCAB)]):
        sys.exit(f"{path}: another vocabulary than that of WORK")
    return weights


def value(v):
    """A GGUF metadata value: its type, then its bytes."""
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + string(v)
    kind, items = {"f": (6, v), "i": (5, v)}.get(getattr(v, "dtype", np.dtype("O")).kind, (8, v))
    body = b"".join(map(string, items)) if kind == 8 else items.tobytes()
    return struct.pack("<IIQ", 9, kind, len(items)) + body


def string(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def write_gguf(path, name, sp, weights):
    c = MODELS[name]
    a = c["arch"]
    if a == "gpt2":
        weights = dict(weights)
        for i in range(c["layers"]):
            for e in (".weight", ".bias"):
                b = f"blk.{i}.attn_"
                weights[b + "qkv" + e] = torch.cat([weights.pop(b + n + e) for n in "qkv"])
    meta = {"general.architecture": a, "general.name": "headrow-" + name,
            "general.license": "mit", "general.alignment": 32,
            f"{a}.vocab_size": VOCAB, f"{a}.block_count": c["layers"],
            f"{a}.context_length": c["context"], f"{a}.embedding_length": c["dim"],
            f"{a}.feed_forward_length": c["ffn"], f"{a}.attention.head_count": c["heads"],
            f"{a}.attention.head_count_kv": c["kv_heads"]}
    meta[f"{a}.attention.layer_norm_{'rms_' if a == 'llama' else ''}epsilon"] = EPS
    if c["position"] == "rope":
        meta[f"{a}.rope.dimension_count"] = c["dim"] // c["heads"]
        meta[f"{a}.rope.freq_base"] = ROPE_BASE
    if a == "transformer":
        meta.update({f"{a}.attention.causal": True, f"{a}.position": c["position"],
                     f"{a}.norm_placement": c["norm"], f"{a}.activation": c["act"],
                     f"{a}.embedding_scale": c["scale"]})
    kind = lambda i: 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1
    meta.update({
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [sp.id_to_piece(i) for i in range(VOCAB)],
        "tokenizer.ggml.scores": np.array([sp.get_score(i) for i in range(VOCAB)], np.float32),
        "tokenizer.ggml.token_type": np.array([kind(i) for i in range(VOCAB)], np.int32),
        "tokenizer.ggml.bos_token_id": BOS, "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.unknown_token_id": UNK, "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False, "tokenizer.ggml.add_space_prefix": True})
    pad = lambda b: b + bytes(-len(b) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(weights), len(meta))
    head += b"".join(string(k) + value(v) for k, v in meta.items())
    body = b""
    for n, w in weights.items():
        dims = w.shape[::-1]
        head += string(n) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, F32, len(body))
        body += pad(w.detach().numpy().tobytes())
    with open(path, "wb") as f:
        f.write(pad(head) + body)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("text")
    ap.add_argument("work")
    ap.add_argument("out")
    ap.add_argument("--only", choices=MODELS)
    ap.add_argument("--steps", type=int, help="instead of the model's own number")
    ap.add_argument("--minutes", type=float, help="train for a time, not for a number of steps")
    ap.add_argument("--samples", type=int, default=10)
    ap.add_argument("--export", action="store_true")
    ap.add_argument("--from", dest="start", metavar="FOLDER",
                    help="begin with the weights of FOLDER/NAME.gguf")
    args = ap.parse_args()
    torch.set_num_threads(1)
    os.makedirs(args.work, exist_ok=True)
    texts, held = stories(args.text)
    sp = vocabulary(texts, args.work)
    for s in texts + held:
        assert decode(sp, encode(sp, s)) == s
    with open(os.path.join(args.work, "held-out.json"), "w") as f:
        json.dump(held, f)         # for reference.py --loss
    for name in [args.only] if args.only else MODELS:
        c = MODELS[name]
        start = args.start and weights_of(os.path.join(args.start, name + ".gguf"), sp)
        steps = args.steps or (FURTHER_STEPS if start else c["steps"])
        if args.export:
            average = torch.load(os.path.join(args.work, name + ".pt"))["average"]
        else:
            average = train(name, sp, texts, held, args.work, steps, args.minutes, start)
        path = os.path.join(args.out, name + ".gguf")
        write_gguf(path, name, sp, average)
        model = Model(c)
        load(model, average)
        report = dict(name=name, bytes=os.path.getsize(path),
                      parameters=sum(p.numel() for p in model.p.values()),
                      held_out=nats_per_byte(model, sp, held),
                      held_out_with_end=nats_per_byte(model, sp, held, True),
                      train=nats_per_byte(model, sp, texts[::10]))
        drawn = [sample(model, 0.8, seed, min(512, c["context"])) for seed in range(args.samples)]
        report["samples_that_end"] = sum(ids[-1] == EOS for ids in drawn)
        report["samples_that_repeat"] = sum(repeats(decode(sp, ids[:150])) for ids in drawn)
        print(json.dumps(report), flush=True)
        with open(os.path.join(args.work, name + ".samples.txt"), "w") as f:
            f.write("\n----\n".join(decode(sp, ids) for ids in drawn) + "\n")


if __name__ == "__main__":
    main()
