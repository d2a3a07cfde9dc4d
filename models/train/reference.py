#!/usr/bin/env python3
"""A forward pass in float64, from a GGUF file and nothing else.

    reference.py MODEL.gguf --ids 1,2,3        logits of the last position
    reference.py MODEL.gguf --text "Once"      the same, for a text
    reference.py MODEL.gguf --loss STORIES     nats a byte, each story alone;
                                               STORIES is a JSON list of texts
    --save FILE                                {"ids": ..., "last_logits": ...}

Weights are widened from what the file holds; nothing is rounded after that.
It shares no code with train.py, so that one can be checked with the other.
"""
import argparse, json, math, struct
import numpy as np

SCALAR = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, path):
        self.data, self.at = open(path, "rb").read(), 0
        if self.data[:4] != b"GGUF":
            raise SystemExit(f"{path}: not a GGUF file")
        self.at = 4
        version, tensors, keys = self.take("IQQ")
        assert version == 3
        self.meta = {}
        for _ in range(keys):
            k = self.string()
            self.meta[k] = self.value(self.take("I"))
        infos = []
        for _ in range(tensors):
            name = self.string()
            dims = [self.take("Q") for _ in range(self.take("I"))]
            infos.append((name, dims[::-1], *self.take("IQ")))
        align = self.meta.get("general.alignment", 32)
        base = (self.at + align - 1) // align * align
        self.tensors = {n: self.widen(shape, kind, base + off) for n, shape, kind, off in infos}

    def take(self, fmt):
        v = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return v[0] if len(v) == 1 else v

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            kind, n = self.take("IQ")
            return [self.value(kind) for _ in range(n)]
        return self.take(SCALAR[kind])

    def widen(self, shape, kind, at):
        n = math.prod(shape)
        if kind in (0, 1):
            w = np.frombuffer(self.data, ("<f4", "<f2")[kind], n, at)
        elif kind == 8:
            b = np.frombuffer(self.data, [("d", "<f2"), ("q", "i1", 32)], n // 32, at)
            w = b["d"].astype(np.float64)[:, None] * b["q"]
        else:
            raise SystemExit(f"tensor type {kind} is not supported")
        return w.astype(np.float64).reshape(shape)


class Tokenizer:
    """SentencePiece BPE: the adjacent pair with the best score is merged, the
    leftmost first. What no token covers becomes bytes."""
    def __init__(self, meta):
        self.pieces = meta["tokenizer.ggml.tokens"]
        self.ids = {p: i for i, p in enumerate(self.pieces)}
        self.scores = meta["tokenizer.ggml.scores"]
        self.bos = meta.get("tokenizer.ggml.bos_token_id", 1)
        self.eos = meta.get("tokenizer.ggml.eos_token_id", 2)
        self.prefix = meta.get("tokenizer.ggml.add_space_prefix", True)

    def encode(self, text):
        s = list(((" " if self.prefix else "") + text).replace(" ", "\u2581"))
        while True:
            best, where = -math.inf, None
            for i in range(len(s) - 1):
                t = self.ids.get(s[i] + s[i + 1])
                if t is not None and self.scores[t] > best:
                    best, where = self.scores[t], i
            if where is None:
                break
            s[where:where + 2] = [s[where] + s[where + 1]]
        out = []
        for p in s:
            if p in self.ids:
                out.append(self.ids[p])
            else:
                out += [self.ids[f"<0x{b:02X}>"] for b in p.encode()]
        return out


def erf(x):
    return np.vectorize(math.erf)(x)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Transformer:
    def __init__(self, path):
        file = Reader(path)
        self.meta, self.w = file.meta, file.tensors
        self.arch = a = self.meta["general.architecture"]
        key = lambda k, default=None: self.meta.get(f"{a}.{k}", default)
        self.layers, self.heads = key("block_count"), key("attention.head_count")
        self.kv_heads = key("attention.head_count_kv", self.heads)
        self.context = key("context_length")
        self.rms = a == "llama"
        self.eps = key(f"attention.layer_norm_{'rms_' if self.rms else ''}epsilon")
        self.position = {"llama": "rope", "gpt2": "learned"}.get(a) or key("position")
        self.post = key("norm_placement", "pre") == "post"
        self.activation = {"llama": "silu", "gpt2": "gelu_tanh"}.get(a) or key("activation")
        self.scale = key("embedding_scale", 1.0)
        self.rope_dims, self.base = key("rope.dimension_count"), key("rope.freq_base", 10000.0)
        assert key("attention.causal", True)

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def norm(self, x, name):
        if self.rms:
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
            return x * self.w[name + ".weight"]
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def act(self, x):
        if self.activation == "relu":
            return np.maximum(x, 0)
        if self.activation == "silu":
            return x / (1 + np.exp(-x))
        if self.activation == "gelu_erf":
            return x * (1 + erf(x / math.sqrt(2))) / 2
        return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))) / 2

    def rotate(self, x):
        """x: heads, positions, width; pairs (2i, 2i+1) of the first rope_dims."""
        x, d = x.copy(), self.rope_dims
        angle = np.arange(x.shape[1])[:, None] / self.base ** (np.arange(0, d, 2) / d)
        a, b = x[..., 0:d:2].copy(), x[..., 1:d:2].copy()
        x[..., 0:d:2] = a * np.cos(angle) - b * np.sin(angle)
        x[..., 1:d:2] = a * np.sin(angle) + b * np.cos(angle)
        return x

    def slopes(self):
        """The ALiBi paper's, also for head counts that are no power of two."""
        power = lambda n: [2.0 ** (-8.0 / n * (i + 1)) for i in range(n)]
        n = 1 << (self.heads.bit_length() - 1)
        return np.array(power(n) + power(2 * n)[0::2][:self.heads - n])

    def attention(self, x, b):
        t = len(x)
        if b + "attn_qkv.weight" in self.w:
            q, k, v = np.split(self.linear(x, b + "attn_qkv"), 3, axis=1)
        else:
            q, k, v = (self.linear(x, b + "attn_" + n) for n in "qkv")
        split = lambda m, h: m.reshape(t, h, -1).transpose(1, 0, 2)
        q, k, v = split(q, self.heads), split(k, self.kv_heads), split(v, self.kv_heads)
        if self.position == "rope":
            q, k = self.rotate(q), self.rotate(k)
        share = self.heads // self.kv_heads
        k, v = k.repeat(share, axis=0), v.repeat(share, axis=0)
        s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        if self.position == "alibi":
            s = s - self.slopes()[:, None, None] * (np.arange(t)[:, None] - np.arange(t))
        s = np.where(np.tril(np.ones((t, t), bool)), s, -np.inf)
        y = (softmax(s) @ v).transpose(1, 0, 2).reshape(t, -1)
        return self.linear(y, b + "attn_output")

    def feed_forward(self, x, b):
        h = self.linear(x, b + "ffn_up")
        gated = b + "ffn_gate.weight" in self.w
        h = self.act(self.linear(x, b + "ffn_gate")) * h if gated else self.act(h)
        return self.linear(h, b + "ffn_down")

    def forward(self, ids):
        x = self.w["token_embd.weight"][ids] * self.scale
        t, d = x.shape
        if self.position == "learned":
            x = x + self.w["position_embd.weight"][:t]
        elif self.position == "sinusoidal":
            angle = np.arange(t)[:, None] / 10000.0 ** (np.arange(0, d, 2) / d)
            x = x.copy()
            x[:, 0::2] += np.sin(angle)
            x[:, 1::2] += np.cos(angle)
        for i in range(self.layers):
            b = f"blk.{i}."
            if self.post:
                x = self.norm(x + self.attention(x, b), b + "attn_output_norm")
                x = self.norm(x + self.feed_forward(x, b), b + "layer_output_norm")
            else:
                x = x + self.attention(self.norm(x, b + "attn_norm"), b)
                x = x + self.feed_forward(self.norm(x, b + "ffn_norm"), b)
        if not self.post:
            x = self.norm(x, "output_norm")
        return x @ self.w.get("output.weight", self.w["token_embd.weight"]).T


def loss(model, tok, stories):
    """Nats a byte without and with the end token. A story longer than the
    context is counted as far as that goes, in tokens and in bytes."""
    nats = ends = size = 0.0
    for s in stories:
        ids = tok.encode(s)
        whole = len(ids) <= model.context
        rows = ([tok.bos] + ids + [tok.eos])[:model.context + 1]
        logits = model.forward(rows[:-1])
        m = logits.max(-1, keepdims=True)
        nll = (m + np.log(np.exp(logits - m).sum(-1, keepdims=True)))[:, 0] - \
            logits[np.arange(len(rows) - 1), rows[1:]]
        ends += nll[-1] if whole else 0
        nats += nll.sum() - (nll[-1] if whole else 0)
        text = s.encode()
        if not whole:       # a token is as long as its text; a byte token is 1
            cut = [tok.pieces[i] for i in ids[:model.context]]
            size += sum(1 if p.startswith("<0x") else len(p.replace("\u2581", " ").encode())
                        for p in cut) - tok.prefix
        else:
            size += len(text)
    return nats / size, (nats + ends) / size


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--ids")
    ap.add_argument("--text")
    ap.add_argument("--count", type=int, help="keep the first COUNT ids of the text")
    ap.add_argument("--context", type=int, help="instead of the file's (for --loss)")
    ap.add_argument("--loss")
    ap.add_argument("--save")
    args = ap.parse_args()
    model = Transformer(args.model)
    tok = Tokenizer(model.meta)
    if args.loss:
        model.context = args.context or model.context
        stories = json.load(open(args.loss))
        print("%.5f nats a byte, %.5f with the end token" % loss(model, tok, stories))
        return
    ids = [int(i) for i in args.ids.split(",")] if args.ids else [tok.bos] + tok.encode(args.text)
    ids = ids[:args.count]
    last = [float(f"{v:.9g}") for v in model.forward(ids)[-1]]
    if args.save:
        with open(args.save, "w") as f:
            json.dump({"ids": ids, "last_logits": last}, f, separators=(",", ":"))
            f.write("\n")
    else:
        print(json.dumps({"ids": ids, "last_logits": last}))


if __name__ == "__main__":
    main()
