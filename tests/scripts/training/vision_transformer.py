"""A small Vision Transformer: patches by a convolution, a class token, nn.TransformerEncoder, AdamW."""

import math

import torch
from torch import nn, optim
from torch.nn.init import trunc_normal_
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR


class PatchEmbed(nn.Module):
    def __init__(self, img_size=16, patch_size=4, in_chans=3, embed_dim=32):
        super().__init__()
        self.num_patches = (img_size // patch_size) ** 2
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)  # B, N, C


class VisionTransformer(nn.Module):
    def __init__(self, embed_dim=32, depth=2, num_heads=4, num_classes=10, drop=0.1):
        super().__init__()
        self.patch_embed = PatchEmbed(embed_dim=embed_dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, self.patch_embed.num_patches + 1, embed_dim))
        self.pos_drop = nn.Dropout(p=drop)
        layer = nn.TransformerEncoderLayer(
            d_model=embed_dim, nhead=num_heads, dim_feedforward=embed_dim * 2, dropout=drop,
            activation="gelu", batch_first=True, norm_first=True,
        )  # fmt: skip
        self.blocks = nn.TransformerEncoder(
            layer, num_layers=depth, norm=nn.LayerNorm(embed_dim), enable_nested_tensor=False
        )
        self.head = nn.Linear(embed_dim, num_classes) if num_classes > 0 else nn.Identity()
        trunc_normal_(self.pos_embed, std=0.02)
        trunc_normal_(self.cls_token, std=0.02)
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            trunc_normal_(m.weight, std=0.02)
            if m.bias is not None:
                nn.init.constant_(m.bias, 0)
        elif isinstance(m, nn.LayerNorm):
            nn.init.constant_(m.bias, 0)
            nn.init.constant_(m.weight, 1.0)

    @torch.no_grad()
    def attention_of_first(self, x):
        tokens = self.embed(x)
        block = self.blocks.layers[0]
        normed = block.norm1(tokens)
        _, weights = block.self_attn(normed, normed, normed, need_weights=True)
        return weights

    def embed(self, x):
        x = self.patch_embed(x)
        cls_tokens = self.cls_token.expand(x.shape[0], -1, -1)
        x = torch.cat((cls_tokens, x), dim=1)
        return self.pos_drop(x + self.pos_embed)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x))[:, 0])


def main():
    torch.manual_seed(0)
    model = VisionTransformer()
    n_parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print("number of params:", n_parameters)
    no_decay = [p for n, p in model.named_parameters() if p.ndim <= 1 or n.endswith("token")]
    decay = [p for n, p in model.named_parameters() if not (p.ndim <= 1 or n.endswith("token"))]
    optimizer = optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}],
        lr=1e-3,
    )
    warmup = LinearLR(optimizer, start_factor=0.1, total_iters=2)
    cosine = CosineAnnealingLR(optimizer, T_max=4)
    scheduler = SequentialLR(optimizer, [warmup, cosine], milestones=[2])
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    images, labels = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
    for step in range(5):
        model.train()
        loss = criterion(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        lr = optimizer.param_groups[0]["lr"]
        print(f"step {step} loss {loss.item():.4f} lr {lr:.6f}")
    model.eval()
    attn = model.attention_of_first(images[:2])
    print(attn.shape, torch.allclose(attn.sum(-1), torch.ones(2, 17), atol=1e-5))
    with torch.inference_mode():
        probs = model(images).softmax(-1)
    top = probs.topk(3, dim=-1)
    print(top.values[0].tolist() == sorted(top.values[0].tolist(), reverse=True), top.indices.shape)
    print([n for n, _ in model.named_children()], model.cls_token.grad.shape)
    poly = LambdaLR(optimizer, lambda e: 0.5 * (1 + math.cos(math.pi * e / 10)))
    print([round(lr, 6) for lr in poly.get_last_lr()])


if __name__ == "__main__":
    main()
