"""The next ring: one short scenario for each of fifty libraries; each gives back a few numbers.

Seeds give the same random numbers as torch's, so the numbers agree as well.
"""

import tempfile


def fit(net, x, y, loss, n=3, lr=1e-2):
    import torch

    o = torch.optim.Adam(net.parameters(), lr=lr)
    out = []
    for _ in range(n):
        o.zero_grad()
        l = loss(net(x), y)
        l.backward()
        o.step()
        out.append(float(l.detach()))
    return out


def torchvision():
    import torch
    import torch.nn.functional as F
    from torchvision import models, ops, transforms
    from torchvision.transforms import v2

    x = torch.randn(2, 3, 64, 64)
    out = fit(models.resnet18(num_classes=5), x, torch.tensor([1, 3]), F.cross_entropy, 2)
    out.append(float(models.vit_b_16(image_size=32, num_classes=3).eval()(x[:, :, :32, :32]).sum()))
    t = v2.Compose(
        [v2.Resize(32), v2.RandomHorizontalFlip(1.0), v2.Normalize([0.5] * 3, [0.5] * 3)]
    )
    out.append(float(t(torch.rand(3, 64, 64)).mean()))
    import numpy as np
    from PIL import Image

    im = Image.fromarray((np.arange(48 * 48 * 3) % 255).astype("uint8").reshape(48, 48, 3))
    out.append(
        float(
            transforms.Compose(
                [transforms.Resize(20), transforms.CenterCrop(16), transforms.ToTensor()]
            )(im).mean()
        )
    )
    b = torch.rand(10, 4)
    b[:, 2:] += b[:, :2]
    out.append(float(ops.box_iou(b, b).sum()))
    out.append(float(ops.nms(b, torch.rand(10), 0.3).sum()))
    return out


def torchvision_detect():
    import torch
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn as M

    m = M(weights=None, weights_backbone=None, num_classes=3).eval()
    r = m([torch.rand(3, 64, 64)])
    return [float(len(r[0]["boxes"])), float(r[0]["scores"].sum())]


def torchvision_features():
    import torch
    from torchvision import models
    from torchvision.models.feature_extraction import create_feature_extractor

    m = create_feature_extractor(models.resnet18(), {"layer2": "a", "layer4": "b"}).eval()
    r = m(torch.randn(1, 3, 64, 64))
    return [float(r["a"].mean()), float(r["b"].mean())]


def torchaudio():
    import torch
    import torchaudio

    w = torch.randn(1, 4000)
    m = torchaudio.transforms.MelSpectrogram(sample_rate=16000, n_fft=256, n_mels=20)(w)
    r = torchaudio.functional.resample(w, 16000, 8000)
    c = torchaudio.transforms.MFCC(16000, n_mfcc=13, melkwargs=dict(n_fft=256, n_mels=20))(w)
    f = torchaudio.models.Conformer(20, 2, 32, 1, 3).eval()(
        m.transpose(1, 2), torch.tensor([m.shape[-1]])
    )[0]
    return [float(m.mean()), float(r.pow(2).mean()), float(c.mean()), float(f.abs().mean())]


def torch_geometric():
    import torch
    import torch.nn.functional as F
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool

    e = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]])
    ds = [Data(x=torch.randn(4, 8), edge_index=e, y=torch.tensor([i % 2])) for i in range(6)]

    class N(torch.nn.Module):
        def __init__(s):
            super().__init__()
            s.a = GCNConv(8, 16)
            s.b = GATConv(16, 8, heads=2)
            s.c = SAGEConv(16, 16)
            s.d = GINConv(torch.nn.Linear(16, 16))
            s.o = torch.nn.Linear(16, 2)

        def forward(s, d):
            x = s.a(d.x, d.edge_index).relu()
            x = s.b(x, d.edge_index).relu()
            x = s.c(x, d.edge_index)
            x = s.d(x, d.edge_index)
            return s.o(global_mean_pool(x, d.batch))

    m = N()
    b = next(iter(DataLoader(ds, batch_size=6)))
    return fit(m, b, b.y, F.cross_entropy, 4)


def pytorch_lightning():
    import pytorch_lightning as L
    import torch
    import torch.nn.functional as F

    L.seed_everything(0)

    class M(L.LightningModule):
        def __init__(s):
            super().__init__()
            s.n = torch.nn.Linear(4, 2)
            s.ls = []

        def training_step(s, b, i):
            l = F.cross_entropy(s.n(b[0]), b[1])
            s.ls.append(float(l.detach()))
            s.log("l", l)
            return l

        def configure_optimizers(s):
            return torch.optim.SGD(s.parameters(), lr=0.1)

    dl = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(12, 4), torch.randint(0, 2, (12,))),
        batch_size=4,
        shuffle=True,
    )
    with tempfile.TemporaryDirectory() as d:
        m = M()
        L.Trainer(
            max_steps=4,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            default_root_dir=d,
            callbacks=[L.callbacks.EarlyStopping("l", patience=9)],
        ).fit(m, dl)
    return m.ls


def fastai():
    import fastai.callback.progress
    import fastai.callback.schedule  # noqa: F401  (both give Learner its methods)
    import torch
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from fastai.learner import Learner

    torch.manual_seed(0)
    x, y = torch.randn(32, 4), torch.randint(0, 2, (32,))
    ds = list(zip(x, y))
    dls = DataLoaders(DataLoader(ds, bs=8), DataLoader(ds, bs=8))
    l = Learner(
        dls,
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)),
        loss_func=torch.nn.CrossEntropyLoss(),
    )
    with l.no_bar(), l.no_logging():
        l.fit_one_cycle(2, 1e-2)
    return [float(v) for v in l.recorder.values[-1]]


def fastai_vision():
    import torch
    from fastai.vision.all import (
        DynamicUnet,
        create_body,
        resnet18,
    )

    m = DynamicUnet(create_body(resnet18(weights=None)), 3, (32, 32)).eval()
    return [float(m(torch.randn(1, 3, 32, 32)).abs().mean())]


def ultralytics():
    import torch
    from ultralytics.nn.tasks import DetectionModel

    m = DetectionModel("yolov8n.yaml", nc=3, verbose=False)
    m.args = type("A", (), dict(box=7.5, cls=0.5, dfl=1.5, overlap_mask=True))()
    b = dict(
        img=torch.rand(2, 3, 64, 64),
        batch_idx=torch.tensor([0.0, 1.0]),
        cls=torch.tensor([[0.0], [1.0]]),
        bboxes=torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.4, 0.4, 0.3, 0.3]]),
    )
    l, it = m.train()(b)
    l.sum().backward()
    with torch.no_grad():
        p = m.eval()(b["img"])[0]
    return [float(l.sum().detach()), float(p.abs().mean())]


def ultralytics_predict():
    import numpy as np
    from ultralytics import YOLO

    r = YOLO("yolov8n.yaml").predict(
        np.zeros((64, 64, 3), "uint8"), imgsz=64, conf=0.001, verbose=False, device="cpu"
    )
    return [float(len(r[0].boxes))]


def open_clip():
    import open_clip
    import torch

    m = open_clip.model.CLIP(
        embed_dim=32,
        vision_cfg=dict(layers=2, width=64, head_width=16, patch_size=8, image_size=32),
        text_cfg=dict(layers=2, width=32, heads=2, context_length=16, vocab_size=64),
    )
    l = open_clip.ClipLoss()(*m(torch.randn(3, 3, 32, 32), torch.randint(1, 60, (3, 16))))
    l.backward()
    return [float(l.detach()), float(m.visual.conv1.weight.grad.abs().mean())]


def kornia():
    import kornia as K
    import torch

    x = torch.rand(2, 3, 32, 32)
    out = [
        float(K.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)).mean()),
        float(K.color.rgb_to_hsv(x).mean()),
        float(K.geometry.transform.rotate(x, torch.tensor([30.0, 60.0])).mean()),
    ]
    a = K.augmentation.AugmentationSequential(
        K.augmentation.RandomHorizontalFlip(p=0.5),
        K.augmentation.ColorJitter(0.2, 0.2, 0.2, 0.2, p=1.0),
        K.augmentation.RandomAffine(15.0, p=1.0),
        data_keys=["input"],
    )
    out.append(float(a(x).mean()))
    out.append(float(K.losses.ssim_loss(x, x * 0.9, 5)))
    out.append(float(K.filters.canny(x)[0].mean()))
    out.append(float(K.feature.harris_response(x[:, :1]).mean()))
    out.append(
        float(
            K.geometry.homography.find_homography_dlt(torch.rand(1, 6, 2), torch.rand(1, 6, 2))
            .abs()
            .mean()
        )
    )
    return out


def segmentation_models_pytorch():
    import segmentation_models_pytorch as smp
    import torch

    m = smp.Unet("resnet18", encoder_weights=None, classes=2)
    return fit(
        m,
        torch.randn(2, 3, 64, 64),
        torch.randint(0, 2, (2, 64, 64)),
        smp.losses.DiceLoss("multiclass"),
        2,
    )


def monai():
    import torch
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceLoss
    from monai.networks.nets import UNet

    m = UNet(
        spatial_dims=3,
        in_channels=1,
        out_channels=2,
        channels=(8, 16, 32),
        strides=(2, 2),
        num_res_units=1,
    )
    out = fit(
        m,
        torch.randn(1, 1, 16, 16, 16),
        torch.randint(0, 2, (1, 1, 16, 16, 16)),
        DiceLoss(to_onehot_y=True, softmax=True),
        2,
    )
    with torch.no_grad():
        out.append(
            float(
                sliding_window_inference(torch.randn(1, 1, 20, 20, 20), (16, 16, 16), 2, m).mean()
            )
        )
    return out


def monai_transforms():
    import torch
    from monai.transforms import Compose, EnsureChannelFirst, Resize, ScaleIntensity

    t = Compose([EnsureChannelFirst(channel_dim="no_channel"), ScaleIntensity(), Resize((8, 8, 8))])
    return [float(t(torch.randn(16, 16, 16)).mean())]


def skorch():
    import numpy as np
    import torch
    from sklearn.model_selection import GridSearchCV
    from skorch import NeuralNetClassifier

    torch.manual_seed(0)
    r = np.random.RandomState(0)
    x = r.randn(60, 4).astype("float32")
    y = (x[:, 0] > 0).astype("int64")

    class M(torch.nn.Module):
        def __init__(s, h=8):
            super().__init__()
            s.n = torch.nn.Sequential(
                torch.nn.Linear(4, h), torch.nn.ReLU(), torch.nn.Linear(h, 2), torch.nn.Softmax(-1)
            )

        def forward(s, x):
            return s.n(x)

    M.__qualname__ = "SkorchM"
    M.__module__ = __name__
    globals()["SkorchM"] = M
    n = NeuralNetClassifier(M, max_epochs=3, lr=0.1, verbose=0).fit(x, y)
    g = GridSearchCV(
        NeuralNetClassifier(M, max_epochs=2, lr=0.1, verbose=0, train_split=None),
        {"module__h": [4, 8]},
        cv=2,
    ).fit(x, y)
    import pickle

    p = pickle.loads(pickle.dumps(n))
    return [
        float(n.history[-1]["train_loss"]),
        float(p.predict_proba(x).sum()),
        float(g.best_score_),
    ]


def stable_baselines3():
    from stable_baselines3 import DQN, PPO, SAC

    m = PPO(
        "MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu"
    ).learn(128)
    d = DQN("MlpPolicy", "CartPole-v1", learning_starts=20, seed=0, device="cpu").learn(60)
    s = SAC(
        "MlpPolicy", "Pendulum-v1", learning_starts=10, batch_size=16, seed=0, device="cpu"
    ).learn(20)
    with tempfile.TemporaryDirectory() as t:
        m.save(t + "/m")
        PPO.load(t + "/m", device="cpu")
    return [float(sum(p.sum() for p in x.policy.parameters())) for x in (m, d, s)]


def gpytorch():
    import gpytorch
    import torch

    x = torch.linspace(0, 1, 20)
    y = torch.sin(x * 6)

    class M(gpytorch.models.ExactGP):
        def __init__(s, l):
            super().__init__(x, y, l)
            s.m = gpytorch.means.ConstantMean()
            s.k = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(s, x):
            return gpytorch.distributions.MultivariateNormal(s.m(x), s.k(x))

    l = gpytorch.likelihoods.GaussianLikelihood()
    m = M(l)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(l, m)
    out = fit(m, x, y, lambda o, t: -mll(o, t), 3, 0.1)
    m.eval()
    l.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        p = l(m(torch.linspace(0, 1, 5)))
        out += [float(p.mean.sum()), float(p.variance.sum())]
    return out


def botorch():
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(0)
    x = torch.rand(8, 2, dtype=torch.float64)
    y = (x - 0.5).pow(2).sum(-1, keepdim=True).neg()
    m = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(m.likelihood, m))
    c, v = optimize_acqf(
        LogExpectedImprovement(m, y.max()),
        bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64),
        q=1,
        num_restarts=2,
        raw_samples=16,
    )
    return [float(v), float(c.sum())]


def pyro():
    import pyro
    import pyro.distributions as D
    import torch
    from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoDiagonalNormal

    pyro.set_rng_seed(0)
    data = torch.randn(20) + 2

    def model(d):
        mu = pyro.sample("mu", D.Normal(0.0, 5.0))
        s = pyro.sample("s", D.LogNormal(0.0, 1.0))
        with pyro.plate("n", len(d)):
            pyro.sample("x", D.Normal(mu, s), obs=d)

    svi = SVI(model, AutoDiagonalNormal(model), pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    out = [float(svi.step(data)) for _ in range(3)]
    k = MCMC(NUTS(model), num_samples=5, warmup_steps=5, disable_progbar=True)
    k.run(data)
    return out + [float(k.get_samples()["mu"].mean())]


def captum():
    import torch
    from captum.attr import (
        DeepLift,
        FeatureAblation,
        IntegratedGradients,
        LayerGradCam,
    )

    n = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    x = torch.randn(2, 4)
    a, d = IntegratedGradients(n).attribute(x, target=1, return_convergence_delta=True, n_steps=10)
    b = DeepLift(n).attribute(x, target=1)
    c = FeatureAblation(n).attribute(x, target=0)
    cn = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(72, 2)
    )
    g = LayerGradCam(cn, cn[0]).attribute(torch.randn(1, 1, 8, 8), target=1)
    return [float(t.abs().sum()) for t in (a, d, b, c, g)]


def torchdiffeq():
    import torch
    from torchdiffeq import odeint, odeint_adjoint

    f = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    class G(torch.nn.Module):
        def __init__(s):
            super().__init__()
            s.f = f

        def forward(s, t, y):
            return s.f(y)

    g = G()
    y = torch.randn(3, 2)
    t = torch.linspace(0, 1, 4)
    a = odeint(g, y, t, method="dopri5")
    a.sum().backward()
    ga = float(f[0].weight.grad.abs().sum())
    f.zero_grad()
    odeint_adjoint(g, y, t).sum().backward()
    return [float(a.detach().sum()), ga, float(f[0].weight.grad.abs().sum())]


def x_transformers():
    import torch
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    m = AutoregressiveWrapper(
        TransformerWrapper(
            num_tokens=64,
            max_seq_len=32,
            attn_layers=Decoder(
                dim=32, depth=2, heads=4, attn_flash=True, rotary_pos_emb=True, ff_glu=True
            ),
        )
    )
    l = m(torch.randint(0, 64, (2, 16)))
    l.backward()
    g = m.generate(torch.randint(0, 64, (1, 4)), 5, temperature=0.0)
    return [float(l.detach()), float(g.sum())]


def vector_quantize_pytorch():
    import torch
    from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize

    x = torch.randn(2, 16, 32)
    q, i, l = VectorQuantize(dim=32, codebook_size=16, decay=0.8, commitment_weight=1.0)(x)
    r = ResidualVQ(dim=32, codebook_size=16, num_quantizers=2)(x)[0]
    f = FSQ([8, 5, 5])(torch.randn(2, 16, 3))[0]
    return [float(l.sum().detach()), float(q.sum()), float(r.sum()), float(f.sum())]


def denoising_diffusion_pytorch():
    import torch
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    d = GaussianDiffusion(
        Unet(dim=16, dim_mults=(1, 2), flash_attn=False),
        image_size=16,
        timesteps=20,
        sampling_timesteps=3,
    )
    l = d(torch.rand(2, 3, 16, 16))
    l.backward()
    return [float(l.detach()), float(d.sample(batch_size=1).mean())]


def vit_pytorch():
    import torch
    import torch.nn.functional as F
    from vit_pytorch import SimpleViT, ViT

    m = ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64)
    return fit(m, torch.randn(2, 3, 32, 32), torch.tensor([0, 3]), F.cross_entropy, 3) + [
        float(
            SimpleViT(
                image_size=32, patch_size=8, num_classes=5, dim=32, depth=1, heads=2, mlp_dim=64
            )(torch.randn(1, 3, 32, 32)).sum()
        )
    ]


def torch_ema():
    import torch
    from torch_ema import ExponentialMovingAverage as E

    n = torch.nn.Linear(3, 2)
    e = E(n.parameters(), decay=0.9)
    fit(n, torch.randn(4, 3), torch.randn(4, 2), torch.nn.functional.mse_loss)
    e.update()
    with e.average_parameters():
        return [float(n.weight.sum())]


def ema_pytorch():
    import torch
    from ema_pytorch import EMA

    n = torch.nn.Linear(3, 2)
    e = EMA(n, beta=0.9, update_after_step=0, update_every=1)
    fit(n, torch.randn(4, 3), torch.randn(4, 2), torch.nn.functional.mse_loss)
    e.update()
    e.update()
    return [float(e(torch.ones(1, 3)).sum())]


def bitsandbytes():
    import bitsandbytes as bnb
    import torch

    n = torch.nn.Linear(64, 64)
    o = bnb.optim.Adam8bit(n.parameters())
    n(torch.randn(2, 64)).sum().backward()
    o.step()
    return [float(bnb.nn.Linear8bitLt(64, 64)(torch.randn(2, 64)).sum())]


def trl():
    from datasets import Dataset
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as tm
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    tk = Tokenizer(
        tm.WordLevel(
            {w: i for i, w in enumerate(["<pad>", "<unk>", "<s>", "</s>", "a", "b", "c", "d"])},
            unk_token="<unk>",
        )
    )
    tk.pre_tokenizer = pre_tokenizers.Whitespace()
    t = PreTrainedTokenizerFast(
        tokenizer_object=tk, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    m = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    )
    with tempfile.TemporaryDirectory() as d:
        r = SFTTrainer(
            m,
            args=SFTConfig(
                output_dir=d,
                max_steps=2,
                per_device_train_batch_size=2,
                report_to=[],
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
                save_strategy="no",
                max_length=16,
            ),
            train_dataset=Dataset.from_dict({"text": ["a b c d", "d c b a", "a a b b", "c c d d"]}),
            processing_class=t,
        ).train()
    return [r.training_loss]


def datasets():
    import torch
    from datasets import Dataset

    d = Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [0, 1, 0]}).with_format(
        "torch"
    )
    b = d[:2]
    l = next(iter(torch.utils.data.DataLoader(d, batch_size=3)))
    assert isinstance(b["x"], torch.Tensor)
    m = d.map(lambda r: {"z": r["x"].sum()})
    return [
        float(b["x"].sum()),
        float(l["x"].sum()),
        float(m["z"][0] if not isinstance(m["z"], list) else m["z"][0]),
    ]


def tensordict():
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    t = TensorDict({"a": torch.randn(3, 4), "b": {"c": torch.ones(3)}}, batch_size=[3])
    s = torch.stack([t, t])
    m = TensorDictSequential(
        TensorDictModule(torch.nn.Linear(4, 2), in_keys=["a"], out_keys=["h"]),
        TensorDictModule(torch.nn.Linear(2, 1), in_keys=["h"], out_keys=["o"]),
    )
    o = m(t)
    return [
        float(o["o"].sum()),
        float(s["b", "c"].sum()),
        float((t + 1)["a"].sum()),
        float(t[1:]["a"].sum()),
    ]


def torchrl():
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer
    from torchrl.modules import MLP

    rb = ReplayBuffer(storage=LazyTensorStorage(20), batch_size=4)
    rb.extend(TensorDict({"o": torch.randn(10, 3)}, batch_size=[10]))
    return [float(rb.sample()["o"].sum()), float(MLP(3, 2, num_cells=[8])(torch.randn(2, 3)).sum())]


def pytorch_metric_learning():
    import torch
    from pytorch_metric_learning import losses, miners

    e = torch.randn(8, 4, requires_grad=True)
    y = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    mi = miners.MultiSimilarityMiner()(e, y)
    l = (
        losses.TripletMarginLoss()(e, y, mi)
        + losses.NTXentLoss()(e, y)
        + losses.ArcFaceLoss(4, 4)(e, y)
    )
    l.backward()
    return [float(l.detach()), float(e.grad.abs().sum())]


def pytorch_forecasting():
    import lightning.pytorch as pl
    import numpy as np
    import pandas as pd
    from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet

    pl.seed_everything(0)
    df = pd.DataFrame(
        dict(t=list(range(30)) * 2, g=["a"] * 30 + ["b"] * 30, v=np.sin(np.arange(60.0)))
    )
    ds = TimeSeriesDataSet(
        df,
        time_idx="t",
        target="v",
        group_ids=["g"],
        max_encoder_length=8,
        max_prediction_length=3,
        time_varying_unknown_reals=["v"],
    )
    m = TemporalFusionTransformer.from_dataset(
        ds, hidden_size=8, attention_head_size=1, hidden_continuous_size=4
    )
    with tempfile.TemporaryDirectory() as d:
        t = pl.Trainer(
            max_steps=2,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_checkpointing=False,
            default_root_dir=d,
        )
        t.fit(m, ds.to_dataloader(batch_size=8))
    return [
        float(
            t.callback_metrics["train_loss_step"]
            if "train_loss_step" in t.callback_metrics
            else list(t.callback_metrics.values())[0]
        )
    ]


def neuralforecast():
    import numpy as np
    import pandas as pd
    from neuralforecast import NeuralForecast
    from neuralforecast.models import NHITS

    df = pd.DataFrame(
        dict(unique_id="a", ds=pd.date_range("2020-01-01", periods=60), y=np.sin(np.arange(60.0)))
    )
    nf = NeuralForecast(
        models=[
            NHITS(
                h=4,
                input_size=8,
                max_steps=3,
                enable_progress_bar=False,
                logger=False,
                enable_checkpointing=False,
                accelerator="cpu",
            )
        ],
        freq="D",
    )
    nf.fit(df)
    return [float(nf.predict()["NHITS"].sum())]


def darts():
    import numpy as np
    from darts import TimeSeries
    from darts.models import NBEATSModel

    m = NBEATSModel(
        input_chunk_length=8,
        output_chunk_length=2,
        n_epochs=1,
        num_stacks=2,
        layer_widths=16,
        random_state=0,
        pl_trainer_kwargs=dict(accelerator="cpu", enable_progress_bar=False, logger=False),
    )
    s = TimeSeries.from_values(np.sin(np.arange(40.0)).astype("float32"))
    m.fit(s)
    return [float(m.predict(3).values().sum())]


def flair():
    import flair
    import torch
    from flair.data import Dictionary, Sentence
    from flair.embeddings import CharacterEmbeddings
    from flair.models import SequenceTagger

    flair.device = torch.device("cpu")
    ld = Dictionary(add_unk=False)
    [ld.add_item(x) for x in ("O", "S-A")]
    s = Sentence("hello big world")
    s[0:1].add_label("t", "A")
    letters = Dictionary()
    for letter in "abdeghilorw ":
        letters.add_item(letter)
    e = CharacterEmbeddings(letters)
    m = SequenceTagger(
        embeddings=e,
        tag_dictionary=ld,
        tag_type="t",
        hidden_size=8,
        use_crf=True,
        tag_format="BIOES",
    )
    l, n = m.forward_loss([s])
    l.backward()
    return [float(l.detach())]


def thinc():
    import numpy as np
    import torch
    from thinc.api import Adam, PyTorchWrapper

    torch.manual_seed(0)
    m = PyTorchWrapper(torch.nn.Linear(4, 3))
    m.initialize()
    x = np.ones((2, 4), "float32")
    y, b = m.begin_update(x)
    dx = b(np.ones((2, 3), "float32"))
    m.finish_update(Adam(0.01))
    return [float(y.sum()), float(dx.sum()), float(m.predict(x).sum())]


def e3nn():
    import torch
    from e3nn import o3

    x = o3.spherical_harmonics([0, 1, 2], torch.randn(5, 3), True)
    t = o3.FullyConnectedTensorProduct("0e+1o+2e", "0e+1o", "0e+1o")
    r = t(x, o3.spherical_harmonics([0, 1], torch.randn(5, 3), True))
    r.sum().backward()
    return [
        float(r.detach().sum()),
        float(t.weight.grad.abs().sum()),
        float(o3.rand_matrix(2).det().sum()),
    ]


def torch_fidelity():
    import torch
    from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric

    a = fid_features_to_statistics(torch.randn(40, 8))
    b = fid_features_to_statistics(torch.randn(40, 8))
    return [float(fid_statistics_to_metric(a, b, False)["frechet_inception_distance"])]


def lpips():
    import lpips
    import torch

    m = lpips.LPIPS(net="alex", pretrained=True, pnet_rand=True, verbose=False)
    x = torch.rand(1, 3, 64, 64, requires_grad=True)
    l = m(x, torch.rand(1, 3, 64, 64))
    l.sum().backward()
    return [float(l.detach().sum()), float(x.grad.abs().sum())]


def nflows():
    import torch
    from nflows import distributions as D
    from nflows import flows
    from nflows import transforms as T

    f = flows.Flow(
        T.CompositeTransform(
            [
                T.ReversePermutation(2),
                T.MaskedAffineAutoregressiveTransform(2, 8),
                T.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
                    2, 8, tails="linear", tail_bound=3.0
                ),
            ]
        ),
        D.StandardNormal([2]),
    )
    l = -f.log_prob(torch.randn(6, 2)).mean()
    l.backward()
    return [float(l.detach()), float(f.sample(4).sum())]


def higher():
    import higher
    import torch

    n = torch.nn.Linear(3, 1)
    o = torch.optim.SGD(n.parameters(), lr=0.1)
    x = torch.randn(4, 3)
    with higher.innerloop_ctx(n, o, copy_initial_weights=False) as (f, d):
        for _ in range(2):
            d.step(f(x).pow(2).mean())
        f(x).pow(2).mean().backward()
    return [float(n.weight.grad.sum())]


def functorch_like():
    import torch
    from torch.func import (
        functional_call,
        grad,
        hessian,
        jacfwd,
        stack_module_state,
        vmap,
    )

    ms = [torch.nn.Linear(3, 2) for _ in range(3)]
    p, b = stack_module_state(ms)
    x = torch.randn(5, 3)
    o = vmap(lambda p, b, x: functional_call(ms[0], (p, b), (x,)), (0, 0, None))(p, b, x)
    pg = vmap(grad(lambda w, x: (x @ w).sin().sum()), (None, 0))(torch.randn(3), x)
    h = hessian(lambda x: (x**3).sum())(x[0])
    return [float(o.sum()), float(pg.sum()), float(h.sum()), float(jacfwd(torch.sin)(x[0]).sum())]


def torchinfo():
    import torch
    import torchinfo

    s = torchinfo.summary(
        torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.LSTM(144, 5)),
        input_size=(2, 3, 8, 8),
        verbose=0,
    )
    str(s)
    return [float(s.total_params), float(s.total_mult_adds), float(s.total_input)]


def torchsummary():
    import torch
    from torchsummary import summary

    summary(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()), (3, 8, 8), device="cpu")
    return [1.0]


def thop():
    import torch
    from thop import profile

    return [
        float(v)
        for v in profile(
            torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()),
            (torch.randn(1, 3, 8, 8),),
            verbose=False,
        )
    ]


def fvcore():
    import torch
    from fvcore.nn import FlopCountAnalysis, parameter_count, sigmoid_focal_loss

    n = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
    out = [
        float(parameter_count(n)[""]),
        float(sigmoid_focal_loss(torch.randn(4), torch.ones(4)).sum()),
    ]
    return out + [float(FlopCountAnalysis(n, torch.randn(1, 3, 8, 8)).total())]


def tensorboard():
    import torch
    from torch.utils.tensorboard import SummaryWriter

    with tempfile.TemporaryDirectory() as d:
        w = SummaryWriter(d)
        w.add_scalar("a", 1.0, 0)
        w.add_histogram("h", torch.randn(10), 0)
        w.add_image("i", torch.rand(3, 4, 4), 0)
        w.add_text("t", "x")
        w.add_embedding(torch.randn(4, 3))
        w.add_hparams({"lr": 0.1}, {"m": 1.0})
        try:
            w.add_graph(torch.nn.Linear(2, 2), torch.randn(1, 2))
            g = 1.0
        except Exception as e:
            print("add_graph:", type(e).__name__, e)
            g = 0.0
        w.close()
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as E

        e = E(d)
        e.Reload()
        return [e.Scalars("a")[0].value, g]


def wandb():
    import torch
    import wandb

    with tempfile.TemporaryDirectory() as d:
        r = wandb.init(project="x", dir=d, mode="offline")
        n = torch.nn.Linear(3, 2)
        wandb.watch(n, log="all", log_freq=1)
        for i in range(2):
            l = n(torch.randn(4, 3)).sum()
            l.backward()
            wandb.log(
                {
                    "l": float(l.detach()),
                    "h": wandb.Histogram(n.weight.detach().numpy()),
                    "i": wandb.Image(torch.rand(3, 8, 8)),
                }
            )
        r.finish()
    return [float(l.detach())]


def hydra_lightning():
    from hydra.utils import instantiate
    from omegaconf import OmegaConf

    c = OmegaConf.create(
        dict(
            net=dict(_target_="torch.nn.Linear", in_features=3, out_features=2),
            opt=dict(_target_="torch.optim.AdamW", _partial_=True, lr=0.1),
            tr=dict(
                _target_="lightning.Trainer",
                max_steps=1,
                accelerator="cpu",
                logger=False,
                enable_progress_bar=False,
            ),
        )
    )
    n = instantiate(c.net)
    o = instantiate(c.opt)(params=n.parameters())
    t = instantiate(c.tr)
    return [float(n.weight.sum()), float(t.max_steps)]


def optuna():
    import optuna
    import torch

    optuna.logging.set_verbosity(40)

    def f(tr):
        torch.manual_seed(0)
        n = torch.nn.Linear(3, 1)
        return fit(
            n,
            torch.randn(8, 3),
            torch.ones(8, 1),
            torch.nn.functional.mse_loss,
            3,
            tr.suggest_float("lr", 1e-3, 1e-1),
        )[-1]

    s = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    s.optimize(f, 3)
    return [s.best_value]


def optuna_gp():
    import optuna

    optuna.logging.set_verbosity(40)
    s = optuna.create_study(sampler=optuna.samplers.GPSampler(seed=0, n_startup_trials=3))
    s.optimize(lambda t: (t.suggest_float("x", -1, 1) - 0.3) ** 2, 6)
    return [s.best_value]


def onnx_export():
    import onnx
    import onnx.reference
    import torch

    n = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    with tempfile.TemporaryDirectory() as d:
        torch.onnx.export(n, (torch.randn(1, 3),), d + "/m.onnx")
        m = onnx.load(d + "/m.onnx")
        onnx.checker.check_model(m)
    given = {m.graph.input[0].name: torch.randn(1, 3).numpy()}
    [got] = onnx.reference.ReferenceEvaluator(m).run(None, given)
    return [float(got.sum())]


def jaxtyping():
    import torch
    from beartype import beartype
    from einops import rearrange
    from jaxtyping import Float, Int, jaxtyped

    @jaxtyped(typechecker=beartype)
    def f(x: Float[torch.Tensor, "b d"], y: Int[torch.Tensor, " b"]) -> Float[torch.Tensor, "d b"]:
        return rearrange(x, "b d -> d b")

    r = f(torch.ones(2, 3), torch.ones(2, dtype=torch.int64))
    try:
        f(torch.ones(2, 3), torch.ones(3, dtype=torch.int64))
        bad = 0.0
    except Exception:
        bad = 1.0
    return [float(r.sum()), bad]


def keras():
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    m = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    m.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    h = m.fit(
        np.random.rand(16, 8, 8, 1).astype("float32"),
        np.random.randint(0, 3, 16),
        epochs=2,
        batch_size=8,
        verbose=0,
    )
    l = keras.Sequential(
        [keras.layers.Embedding(10, 4), keras.layers.LSTM(5), keras.layers.Dense(1)]
    )
    p = l.predict(np.ones((2, 6), "int32"), verbose=0)
    with tempfile.TemporaryDirectory() as d:
        m.save(d + "/m.keras")
        q = keras.models.load_model(d + "/m.keras")
    return [float(v) for v in h.history["loss"]] + [float(p.sum())]


def sklearn_array_api():
    import sklearn
    import torch
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import Ridge
    from sklearn.metrics import accuracy_score

    x = torch.randn(30, 4)
    y = (x[:, 0] > 0).to(torch.int64)
    with sklearn.config_context(array_api_dispatch=True):
        l = LinearDiscriminantAnalysis().fit(x, y)
        p = l.predict(x)
        a = accuracy_score(y, p)
        c = PCA(2, svd_solver="full").fit_transform(x)
        r = Ridge(solver="svd").fit(x, x[:, 1]).predict(x)
    assert isinstance(p, torch.Tensor)
    return [float(a), float(c.abs().sum()), float(r.sum())]


def hub_mixin():
    import torch
    from huggingface_hub import PyTorchModelHubMixin

    class M(torch.nn.Module, PyTorchModelHubMixin):
        def __init__(s, h: int = 4):
            super().__init__()
            s.l = torch.nn.Linear(3, h)

        def forward(s, x):
            return s.l(x)

    m = M(h=5)
    with tempfile.TemporaryDirectory() as d:
        m.save_pretrained(d)
        n = M.from_pretrained(d)
    assert torch.equal(m.l.weight, n.l.weight)
    return [float(n.l.weight.sum())]


SCENARIOS = {
    "torchvision": ("torchvision", torchvision),
    "torchvision_detect": ("torchvision", torchvision_detect),
    "torchvision_features": ("torchvision", torchvision_features),
    "torchaudio": ("torchaudio", torchaudio),
    "torch_geometric": ("torch_geometric", torch_geometric),
    "pytorch_lightning": ("pytorch_lightning", pytorch_lightning),
    "fastai": ("fastai", fastai),
    "fastai_vision": ("fastai", fastai_vision),
    "ultralytics": ("ultralytics", ultralytics),
    "ultralytics_predict": ("ultralytics", ultralytics_predict),
    "open_clip": ("open_clip", open_clip),
    "kornia": ("kornia", kornia),
    "segmentation_models_pytorch": ("segmentation_models_pytorch", segmentation_models_pytorch),
    "monai": ("monai", monai),
    "monai_transforms": ("monai", monai_transforms),
    "skorch": ("skorch", skorch),
    "stable_baselines3": ("stable_baselines3", stable_baselines3),
    "gpytorch": ("gpytorch", gpytorch),
    "botorch": ("botorch", botorch),
    "pyro": ("pyro", pyro),
    "captum": ("captum", captum),
    "torchdiffeq": ("torchdiffeq", torchdiffeq),
    "x_transformers": ("x_transformers", x_transformers),
    "vector_quantize_pytorch": ("vector_quantize_pytorch", vector_quantize_pytorch),
    "denoising_diffusion_pytorch": ("denoising_diffusion_pytorch", denoising_diffusion_pytorch),
    "vit_pytorch": ("vit_pytorch", vit_pytorch),
    "torch_ema": ("torch_ema", torch_ema),
    "ema_pytorch": ("ema_pytorch", ema_pytorch),
    "bitsandbytes": ("bitsandbytes", bitsandbytes),
    "trl": ("trl", trl),
    "datasets": ("datasets", datasets),
    "tensordict": ("tensordict", tensordict),
    "torchrl": ("torchrl", torchrl),
    "pytorch_metric_learning": ("pytorch_metric_learning", pytorch_metric_learning),
    "pytorch_forecasting": ("pytorch_forecasting", pytorch_forecasting),
    "neuralforecast": ("neuralforecast", neuralforecast),
    "darts": ("darts", darts),
    "flair": ("flair", flair),
    "thinc": ("thinc", thinc),
    "e3nn": ("e3nn", e3nn),
    "torch_fidelity": ("torch_fidelity", torch_fidelity),
    "lpips": ("lpips", lpips),
    "nflows": ("nflows", nflows),
    "higher": ("higher", higher),
    "functorch_like": ("", functorch_like),
    "torchinfo": ("torchinfo", torchinfo),
    "torchsummary": ("torchsummary", torchsummary),
    "thop": ("thop", thop),
    "fvcore": ("fvcore", fvcore),
    "tensorboard": ("tensorboard", tensorboard),
    "wandb": ("wandb", wandb),
    "hydra_lightning": ("hydra", hydra_lightning),
    "optuna": ("optuna", optuna),
    "optuna_gp": ("optuna", optuna_gp),
    "onnx_export": ("onnx", onnx_export),
    "jaxtyping": ("jaxtyping", jaxtyping),
    "keras": ("keras", keras),
    "sklearn_array_api": ("sklearn", sklearn_array_api),
    "hub_mixin": ("huggingface_hub", hub_mixin),
}
"""Name: the library (empty: torch alone), and the scenario."""
