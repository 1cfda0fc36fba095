"""The ten core libraries, used as their users do: 21 scenarios of tiny models on random data.

A scenario is a function that imports its library and gives back another one that runs; each `step`
of it is timed and its number kept, to be compared with torch's.
"""

import os
import tempfile

import torch

from tests.ecosystem.steps import back, step

B, S = 2, 12


def ids(v=128, b=B, s=S):
    return torch.randint(3, v, (b, s))


def causal(cls, cfgcls, **kw):
    import transformers

    M = getattr(transformers, cls)
    Cf = getattr(transformers, cfgcls)

    def run():
        cfg = Cf(vocab_size=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, **kw)
        m = step("build", lambda: M(cfg))

        def fwd():
            x = ids()
            am = torch.ones_like(x)
            am[0, :3] = 0
            m.train()
            o = m(input_ids=x, attention_mask=am, labels=x)
            o.loss.backward()
            return float(o.loss.detach())

        step("fwd_bwd", fwd)

        def opt():
            o = torch.optim.AdamW(m.parameters(), lr=1e-3)
            o.step()
            o.zero_grad()

        step("adamw", opt)
        m.eval()
        if hasattr(m.config, "output_router_logits"):
            m.config.output_router_logits = False
        step("greedy", lambda: m.generate(ids(s=5), max_new_tokens=6, do_sample=False))

        def lp():
            x = ids(s=5)
            am = torch.ones_like(x)
            am[0, :2] = 0
            return m.generate(
                x,
                attention_mask=am,
                max_new_tokens=6,
                do_sample=True,
                top_k=20,
                top_p=0.9,
                temperature=0.8,
            )

        step("sample", lp)
        step("beam", lambda: m.generate(ids(s=5), max_new_tokens=4, num_beams=2, do_sample=False))

        def save():
            with tempfile.TemporaryDirectory() as d:
                m.save_pretrained(d)
                m2 = M.from_pretrained(d)
                a, b = m.state_dict(), m2.state_dict()
                assert all(torch.equal(a[k], b[k]) for k in a)
                m3 = M.from_pretrained(d, dtype=torch.bfloat16)
                m3(ids())
                m4 = M.from_pretrained(d, attn_implementation="eager")
                m4(ids())

        step("save_load", save)

    return run


SM = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)


def tf_llama():
    return causal("LlamaForCausalLM", "LlamaConfig", **SM)


def tf_qwen3():
    return causal("Qwen3ForCausalLM", "Qwen3Config", head_dim=8, **SM)


def tf_qwen2():
    return causal("Qwen2ForCausalLM", "Qwen2Config", **SM)


def tf_mixtral():
    return causal(
        "MixtralForCausalLM",
        "MixtralConfig",
        num_local_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
        **SM,
    )


def tf_gpt2():
    return causal("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, n_positions=64)


def tf_bert():
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

    def run():
        cfg = BertConfig(
            vocab_size=128,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            num_labels=3,
        )
        for M in (BertForSequenceClassification, BertForMaskedLM):
            m = step("build", lambda: M(cfg))

            def fwd():
                x = ids()
                am = torch.ones_like(x)
                am[0, -3:] = 0
                y = torch.tensor([0, 2]) if "Seq" in M.__name__ else x
                return back(
                    m(
                        input_ids=x, attention_mask=am, token_type_ids=torch.zeros_like(x), labels=y
                    ).loss
                )

            step("fwd_bwd", fwd)

            def save():
                with tempfile.TemporaryDirectory() as d:
                    m.save_pretrained(d)
                    M.from_pretrained(d).eval()(ids())

            step("save_load", save)

    return run


def tf_vit():
    from transformers import ViTConfig, ViTForImageClassification

    def run():
        cfg = ViTConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
            num_labels=5,
        )
        m = step("build", lambda: ViTForImageClassification(cfg))
        step(
            "fwd_bwd",
            lambda: back(
                m(pixel_values=torch.randn(2, 3, 32, 32), labels=torch.tensor([1, 4])).loss
            ),
        )

        def save():
            with tempfile.TemporaryDirectory() as d:
                m.save_pretrained(d)
                ViTForImageClassification.from_pretrained(d).eval()(torch.randn(1, 3, 32, 32))

        step("save_load", save)

    return run


def tf_whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    def run():
        cfg = WhisperConfig(
            vocab_size=128,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            num_mel_bins=16,
            max_source_positions=50,
            max_target_positions=40,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
        m = step("build", lambda: WhisperForConditionalGeneration(cfg))
        f = torch.randn(2, 16, 100)
        step("fwd_bwd", lambda: back(m(input_features=f, labels=ids(s=7)).loss))
        m.eval()
        step("greedy", lambda: m.generate(f, max_new_tokens=5, do_sample=False))

        def save():
            with tempfile.TemporaryDirectory() as d:
                m.save_pretrained(d)
                WhisperForConditionalGeneration.from_pretrained(d)

        step("save_load", save)

    return run


def tf_t5():
    from transformers import T5Config, T5ForConditionalGeneration

    def run():
        cfg = T5Config(
            vocab_size=128,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        )
        m = step("build", lambda: T5ForConditionalGeneration(cfg))
        step("fwd_bwd", lambda: back(m(input_ids=ids(), labels=ids(s=6)).loss))
        m.eval()
        step("greedy", lambda: m.generate(ids(), max_new_tokens=5, do_sample=False))
        step("sample", lambda: m.generate(ids(), max_new_tokens=5, do_sample=True, top_k=10))
        step("beam", lambda: m.generate(ids(), max_new_tokens=5, num_beams=2, do_sample=False))

        def save():
            with tempfile.TemporaryDirectory() as d:
                m.save_pretrained(d)
                T5ForConditionalGeneration.from_pretrained(d)

        step("save_load", save)

    return run


class DS(torch.utils.data.Dataset):
    def __init__(s, n=16):
        s.n = n

    def __len__(s):
        return s.n

    def __getitem__(s, i):
        x = torch.randint(3, 128, (S,))
        return dict(input_ids=x, labels=x.clone())


def tf_trainer():
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    def run():
        m = LlamaForCausalLM(
            LlamaConfig(vocab_size=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, **SM)
        )
        with tempfile.TemporaryDirectory() as d:
            a = step(
                "args",
                lambda: TrainingArguments(
                    output_dir=d,
                    max_steps=3,
                    per_device_train_batch_size=4,
                    report_to=[],
                    use_cpu=True,
                    logging_steps=1,
                    save_steps=2,
                    eval_strategy="steps",
                    eval_steps=2,
                    lr_scheduler_type="cosine",
                    gradient_accumulation_steps=1,
                    disable_tqdm=True,
                ),
            )
            t = step(
                "ctor", lambda: Trainer(model=m, args=a, train_dataset=DS(), eval_dataset=DS(8))
            )
            step("train", lambda: t.train().training_loss)
            step("evaluate", lambda: t.evaluate()["eval_loss"])
            step(
                "resume",
                lambda: (
                    Trainer(model=m, args=a, train_dataset=DS(), eval_dataset=DS(8))
                    .train(resume_from_checkpoint=os.path.join(d, "checkpoint-2"))
                    .training_loss
                ),
            )

            def gc():
                a2 = TrainingArguments(
                    output_dir=d + "/x",
                    max_steps=2,
                    per_device_train_batch_size=4,
                    report_to=[],
                    use_cpu=True,
                    bf16=True,
                    gradient_checkpointing=True,
                    optim="adamw_torch",
                    disable_tqdm=True,
                    save_strategy="no",
                )
                return Trainer(model=m, args=a2, train_dataset=DS()).train().training_loss

            step("train_bf16_gradckpt", gc)

    return run


def tf_trainer_bf16():
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    def run():
        m = LlamaForCausalLM(
            LlamaConfig(vocab_size=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, **SM)
        )
        with tempfile.TemporaryDirectory() as d:

            def go():
                a2 = TrainingArguments(
                    output_dir=d,
                    max_steps=3,
                    per_device_train_batch_size=4,
                    report_to=[],
                    use_cpu=True,
                    bf16=True,
                    gradient_checkpointing=True,
                    gradient_accumulation_steps=2,
                    optim="adamw_torch",
                    disable_tqdm=True,
                    save_strategy="no",
                    dataloader_num_workers=1,
                )
                return Trainer(model=m, args=a2, train_dataset=DS()).train().training_loss

            step("train", go)

    return run


def timm_(names):
    import timm

    def run():
        from timm.loss import LabelSmoothingCrossEntropy
        from timm.optim import create_optimizer_v2

        for n, kw in names:
            m = step(
                n + " build", lambda: timm.create_model(n, pretrained=False, num_classes=7, **kw)
            )
            sz = kw.get("img_size", 64)

            def fb():
                m.train()
                loss = back(
                    LabelSmoothingCrossEntropy(0.1)(
                        m(torch.randn(2, 3, sz, sz)), torch.tensor([1, 3])
                    )
                )
                o = create_optimizer_v2(m, opt="adamw", lr=1e-3, weight_decay=0.05)
                o.step()
                o.zero_grad()
                return loss

            step(n + " fwd_bwd_opt", fb)

            def ff():
                m.eval()
                return m.forward_features(torch.randn(1, 3, sz, sz))

            step(n + " features", ff)

    return run


def timm_resnet():
    return timm_([("resnet18", {}), ("resnet50", {})])


def timm_vit():
    return timm_(
        [
            ("vit_tiny_patch16_224", dict(img_size=32, depth=2)),
            ("efficientnet_b0", {}),
            ("convnext_atto", {}),
            ("swin_tiny_patch4_window7_224", dict(img_size=56, depths=(1, 1, 1, 1), window_size=7)),
        ]
    )


def lightning_fit():
    import lightning as L

    def run():
        nn, F = torch.nn, torch.nn.functional

        class LM(L.LightningModule):
            def __init__(s):
                super().__init__()
                s.save_hyperparameters()
                s.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

            def training_step(s, b, i):
                l = F.cross_entropy(s.net(b[0]), b[1])
                s.log("loss", l, on_epoch=True, prog_bar=True)
                return l

            def validation_step(s, b, i):
                s.log("v", F.cross_entropy(s.net(b[0]), b[1]))

            def configure_optimizers(s):
                o = torch.optim.AdamW(s.parameters(), lr=1e-3)
                return [o], [torch.optim.lr_scheduler.StepLR(o, 1)]

        ds = torch.utils.data.TensorDataset(torch.randn(24, 8), torch.randint(0, 3, (24,)))
        dl = torch.utils.data.DataLoader(ds, batch_size=8, shuffle=True)
        vl = torch.utils.data.DataLoader(ds, batch_size=8)
        with tempfile.TemporaryDirectory() as d:
            m = LM()
            tr = step(
                "trainer",
                lambda: L.Trainer(
                    max_steps=3,
                    accelerator="cpu",
                    devices=1,
                    logger=False,
                    enable_progress_bar=False,
                    enable_model_summary=True,
                    default_root_dir=d,
                    gradient_clip_val=1.0,
                ),
            )
            step("fit", lambda: (tr.fit(m, dl, vl), float(tr.callback_metrics["loss"]))[1])
            step("validate", lambda: tr.validate(m, vl, verbose=False)[0]["v"])
            step("predict", lambda: tr.test_dataloaders)

            def ck():
                tr.save_checkpoint(d + "/m.ckpt")
                LM.load_from_checkpoint(d + "/m.ckpt", weights_only=False)

            step("ckpt", ck)
            step(
                "fit_bf16",
                lambda: L.Trainer(
                    max_steps=2,
                    accelerator="cpu",
                    devices=1,
                    logger=False,
                    enable_progress_bar=False,
                    enable_model_summary=False,
                    enable_checkpointing=False,
                    default_root_dir=d,
                    precision="bf16-mixed",
                ).fit(LM(), dl),
            )

    return run


def peft_lora():
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    def run():
        cfg = LlamaConfig(vocab_size=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, **SM)
        base = LlamaForCausalLM(cfg)
        m = step(
            "wrap",
            lambda: get_peft_model(
                base,
                LoraConfig(
                    r=4,
                    lora_alpha=8,
                    target_modules=["q_proj", "v_proj"],
                    lora_dropout=0.1,
                    task_type="CAUSAL_LM",
                ),
            ),
        )

        def tr():
            o = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-3)
            x = ids()
            m.train()
            loss = back(m(input_ids=x, labels=x).loss)
            o.step()
            o.zero_grad()
            return loss

        step("train", tr)
        step("print", lambda: m.print_trainable_parameters())

        def sv():
            with tempfile.TemporaryDirectory() as d:
                m.save_pretrained(d)
                PeftModel.from_pretrained(LlamaForCausalLM(cfg), d)

        step("save_load", sv)
        step(
            "generate",
            lambda: m.eval().generate(input_ids=ids(s=4), max_new_tokens=3, do_sample=False),
        )
        step("merge", lambda: m.merge_and_unload())

    return run


def accelerate_prepare():
    from accelerate import Accelerator

    def run():
        nn, F = torch.nn, torch.nn.functional
        net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
        o = torch.optim.AdamW(net.parameters(), lr=1e-3)
        sch = torch.optim.lr_scheduler.LambdaLR(o, lambda s: 1.0)
        dl = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.randn(24, 8), torch.randint(0, 3, (24,))),
            batch_size=8,
            shuffle=True,
        )
        acc = step("ctor", lambda: Accelerator(cpu=True, gradient_accumulation_steps=2))
        r = step("prepare", lambda: acc.prepare(net, o, dl, sch))

        def tr():
            m, op, d, sc = r
            for x, y in d:
                with acc.accumulate(m):
                    l = F.cross_entropy(m(x), y)
                    acc.backward(l)
                    if acc.sync_gradients:
                        acc.clip_grad_norm_(m.parameters(), 1.0)
                    op.step()
                    sc.step()
                    op.zero_grad()
            return acc.gather_for_metrics(l.detach())

        step("train", tr)

        def sv():
            with tempfile.TemporaryDirectory() as d:
                acc.save_state(d)
                acc.load_state(d)
                acc.save_model(r[0], d + "/m")

        step("state", sv)

        def em():
            from accelerate import init_empty_weights, load_checkpoint_and_dispatch

            with init_empty_weights():
                n2 = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
            with tempfile.TemporaryDirectory() as d:
                acc.save_model(r[0], d)
                load_checkpoint_and_dispatch(n2, d, device_map={"": "cpu"})

        step("empty", em)

    return run


def torchmetrics_acc():
    import torchmetrics

    def run():
        p = torch.randn(20, 5).softmax(-1)
        t = torch.randint(0, 5, (20,))

        def a():
            out = []
            for M in (
                torchmetrics.Accuracy,
                torchmetrics.F1Score,
                torchmetrics.AUROC,
                torchmetrics.ConfusionMatrix,
                torchmetrics.Precision,
            ):
                m = M(task="multiclass", num_classes=5)
                m(p, t)
                m.update(p, t)
                out.append(m.compute().double().sum())
                m.reset()
            return torch.stack(out)

        step("classif", a)

        def b():
            for M in (torchmetrics.MeanSquaredError, torchmetrics.MeanMetric, torchmetrics.R2Score):
                m = M()
                m.update(
                    *(
                        (torch.randn(9), torch.randn(9))
                        if M is not torchmetrics.MeanMetric
                        else (torch.randn(9),)
                    )
                )
                m.compute()
            mc = torchmetrics.MetricCollection(
                [torchmetrics.MeanSquaredError(), torchmetrics.MeanAbsoluteError()]
            )
            mc(torch.randn(4), torch.randn(4))
            mc.state_dict()
            mc.clone()
            torchmetrics.image.StructuralSimilarityIndexMeasure()(
                torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)
            )
            torchmetrics.text.Perplexity()(torch.randn(2, 4, 6), torch.randint(0, 6, (2, 4)))

        step("regr_img_text", b)

    return run


def diffusers_unet():
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        DDPMScheduler,
        DiTTransformer2DModel,
        EulerDiscreteScheduler,
        UNet2DConditionModel,
    )

    def run():
        m = step(
            "unet build",
            lambda: UNet2DConditionModel(
                sample_size=16,
                in_channels=4,
                out_channels=4,
                layers_per_block=1,
                block_out_channels=(32, 64),
                down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
                cross_attention_dim=32,
                attention_head_dim=8,
                norm_num_groups=8,
            ),
        )
        step(
            "unet fwd_bwd",
            lambda: back(
                m(torch.randn(1, 4, 16, 16), torch.tensor([5]), torch.randn(1, 7, 32))
                .sample.pow(2)
                .mean()
            ),
        )

        def loop():
            for Sc in (DDPMScheduler, DDIMScheduler, EulerDiscreteScheduler):
                s = Sc()
                s.set_timesteps(3)
                x = torch.randn(1, 4, 16, 16) * s.init_noise_sigma
                with torch.no_grad():
                    for t in s.timesteps:
                        x = s.step(
                            m(s.scale_model_input(x, t), t, torch.randn(1, 7, 32)).sample, t, x
                        ).prev_sample
            return DDPMScheduler().add_noise(x, x, torch.tensor([4]))

        step("sched loop", loop)
        v = step(
            "vae build",
            lambda: AutoencoderKL(
                block_out_channels=(16, 32),
                down_block_types=("DownEncoderBlock2D",) * 2,
                up_block_types=("UpDecoderBlock2D",) * 2,
                latent_channels=4,
                norm_num_groups=8,
                sample_size=16,
            ),
        )
        step("vae", lambda: back(v(torch.randn(1, 3, 16, 16)).sample.mean()))
        d = step(
            "dit",
            lambda: DiTTransformer2DModel(
                num_attention_heads=2,
                attention_head_dim=16,
                in_channels=4,
                num_layers=2,
                sample_size=8,
                norm_num_groups=4,
                num_embeds_ada_norm=10,
            ),
        )
        step(
            "dit fwd",
            lambda: back(
                d(
                    torch.randn(1, 4, 8, 8),
                    timestep=torch.tensor([1]),
                    class_labels=torch.tensor([2]),
                ).sample.mean()
            ),
        )

        def sv():
            with tempfile.TemporaryDirectory() as t:
                m.save_pretrained(t)
                UNet2DConditionModel.from_pretrained(t)

        step("save_load", sv)

    return run


def einops_():
    import einops
    from einops.layers.torch import EinMix, Rearrange, Reduce

    def run():
        x = torch.randn(2, 3, 4, 4, requires_grad=True)

        def f():
            einops.rearrange(x, "b c (h p) (w q) -> b (h w) (c p q)", p=2, q=2).sum().backward()
            einops.reduce(x, "b c h w -> b c", "mean")
            einops.reduce(x, "b c h w -> b c", "max")
            einops.repeat(x, "b c h w -> b c h (w r)", r=2)
            einops.einsum(x, x, "b c h w, b d h w -> b c d")
            einops.pack([x, x], "b * h w")
            torch.nn.Sequential(
                Rearrange("b c h w -> b (c h w)"),
                EinMix("b i -> b o", weight_shape="i o", bias_shape="o", i=48, o=5),
            )(x)
            Reduce("b c h w -> b c", "sum")(x)

        step("ops", f)

    return run


def safetensors_():
    import safetensors.torch as st
    from safetensors import safe_open

    def run():
        with tempfile.TemporaryDirectory() as d:
            t = {
                "a": torch.randn(3, 4),
                "b": torch.arange(5),
                "c": torch.randn(2, 2).bfloat16(),
                "d": torch.tensor([True, False]),
            }
            step("save_file", lambda: st.save_file(t, d + "/x", metadata={"format": "pt"}))
            step("load_file", lambda: st.load_file(d + "/x")["a"])

            def so():
                with safe_open(d + "/x", framework="pt", device="cpu") as f:
                    f.metadata()
                    [f.get_tensor(k) for k in f.keys()]
                    f.get_slice("a")[1:2]
                    f.get_slice("a").get_shape()

            step("safe_open", so)
            step("bytes", lambda: st.load(st.save(t)))
            m = torch.nn.Linear(3, 3)

            def sm():
                st.save_model(m, d + "/m")
                st.load_model(m, d + "/m")

            step("model", sm)

    return run


def sentence_transformers_():
    from sentence_transformers import SentenceTransformer, losses, models, util
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as tm
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    def run():
        with tempfile.TemporaryDirectory() as d:
            vocab = {
                w: i
                for i, w in enumerate(
                    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "a", "b"]
                )
            }
            tk = Tokenizer(tm.WordLevel(vocab, unk_token="[UNK]"))
            tk.pre_tokenizer = pre_tokenizers.Whitespace()
            PreTrainedTokenizerFast(
                tokenizer_object=tk,
                pad_token="[PAD]",
                unk_token="[UNK]",
                cls_token="[CLS]",
                sep_token="[SEP]",
                mask_token="[MASK]",
            ).save_pretrained(d)
            BertModel(
                BertConfig(
                    vocab_size=16,
                    hidden_size=32,
                    intermediate_size=64,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    max_position_embeddings=64,
                )
            ).save_pretrained(d)

            def mk():
                w = models.Transformer(d, max_seq_length=16)
                return SentenceTransformer(modules=[w, models.Pooling(32)], device="cpu")

            m = step("build", mk)
            e = step("encode", lambda: m.encode(["hello world", "a b"], convert_to_tensor=True))
            step("cos", lambda: util.cos_sim(e, e))

            def tr():
                l = losses.CosineSimilarityLoss(m)
                fs = [m.tokenize(["hello", "a"]), m.tokenize(["world", "b"])]
                return back(l(fs, torch.tensor([0.1, 0.9])))

            step("train", tr)

    return run


SCENARIOS = {
    "llama": ("transformers", tf_llama),
    "gpt2": ("transformers", tf_gpt2),
    "bert": ("transformers", tf_bert),
    "vit": ("transformers", tf_vit),
    "whisper": ("transformers", tf_whisper),
    "qwen2": ("transformers", tf_qwen2),
    "qwen3": ("transformers", tf_qwen3),
    "mixtral": ("transformers", tf_mixtral),
    "t5": ("transformers", tf_t5),
    "trainer": ("transformers", tf_trainer),
    "trainer_bf16": ("transformers", tf_trainer_bf16),
    "timm_resnet": ("timm", timm_resnet),
    "timm_vit": ("timm", timm_vit),
    "lightning_fit": ("lightning", lightning_fit),
    "peft_lora": ("peft", peft_lora),
    "accelerate_prepare": ("accelerate", accelerate_prepare),
    "torchmetrics_acc": ("torchmetrics", torchmetrics_acc),
    "diffusers_unet": ("diffusers", diffusers_unet),
    "einops_ops": ("einops", einops_),
    "safetensors_files": ("safetensors", safetensors_),
    "sentence_encode": ("sentence_transformers", sentence_transformers_),
}
"""Name: the library, and the scenario."""
