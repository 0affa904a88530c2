"""What PyTorch has and is not here: each name with what to write, as its AttributeError and docs/python.md say it.

section() is the table there; a test compares.
"""

import sys

# Names of a line share what is said of them.
_WORDS = {
    "jit compile fx func vmap export onnx":
        "modules run as they are written, eagerly: nothing is traced or compiled",
    "linalg fft sparse special":
        "`matmul`, `einsum`, `norm` and `outer` are there; of the rest NumPy's, on `x.numpy()`",
    "distributions":
        "`randn`, `rand`, `bernoulli` and `multinomial` draw; write the densities out",
    "cumprod cummax cummin atan2 asin acos atan sinh cosh lerp addmm addcmul baddbmm cdist cross kron quantile histc searchsorted "
    "bucketize":
        "write it with the operations that are there",
    "FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ByteTensor BoolTensor":
        "`sg.tensor(data, dtype=…)`",
    "bool int8 int16 complex64 complex128":
        "dtypes are float32, float64, bfloat16, float16, int64, int32 and uint8, which truths are",
    "Size":
        "shapes are tuples",
    "Generator default_generator get_rng_state set_rng_state":
        "`sg.manual_seed(n)`; samplers and `random_split` take a `seed=n` of their own",
    "set_default_dtype get_default_dtype set_default_tensor_type set_default_device":
        "`dtype=…` of a call; the device of all: `sg.dist.init(device=…)`",
    "use_deterministic_algorithms backends":
        "nothing is to be switched: a program computes the same bits each time",
    "distributed nn.DataParallel nn.parallel nn.SyncBatchNorm":
        "`sg.dist`, `sg.fully_shard(model, strategy=\"ddp\")`, `sg.fsdp.convert_sync_batchnorm`",
    "multiprocessing":
        "`shardgrad launch` starts ranks; a `DataLoader` makes its batches itself",
    "amp cuda.amp":
        "`sg.autocast`, `sg.optim.GradScaler`",
    "profiler cuda.memory_allocated cuda.max_memory_allocated cuda.memory_summary":
        "`sg.ledger` says who owns memory, `sg.recorder` what was sent",
    "cuda.Stream cuda.Event cuda.stream cuda.set_device cuda.current_device cuda.get_device_name":
        "a rank has one GPU, `sg.dist.init(device=\"cuda\")`, and orders its work itself",
    "autograd.functional autograd.forward_ad autograd.gradcheck autograd.Variable":
        "`sg.autograd.grad` of one output at a time; gradients themselves are not recorded",
    "utils.checkpoint":
        "`sg.checkpoint(f, x)`",
    "utils.tensorboard":
        "a run of `shardgrad train` with `tensorboard=true` writes for it",
    "nn.Transformer nn.TransformerEncoder nn.TransformerEncoderLayer nn.TransformerDecoder nn.TransformerDecoderLayer "
    "nn.MultiheadAttention":
        "`F.scaled_dot_product_attention`, or `F.attention` of the rows (q, k, v) of one `nn.Linear`",
    "nn.ConvTranspose1d nn.ConvTranspose2d nn.ConvTranspose3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.Upsample "
    "nn.functional.interpolate nn.PixelShuffle nn.functional.pixel_shuffle nn.functional.grid_sample":
        "`x.repeat_interleave(2, 2).repeat_interleave(2, 3)` makes images twice as large; an `nn.Conv2d` after it",
    "nn.Conv3d nn.MaxPool3d nn.AvgPool3d nn.BatchNorm3d nn.functional.conv3d nn.functional.max_pool3d":
        "windows have one dimension or two",
    "nn.AdaptiveMaxPool1d nn.AdaptiveMaxPool2d nn.functional.adaptive_max_pool2d":
        "of whole images `x.amax((2, 3))`",
    "nn.InstanceNorm1d nn.InstanceNorm2d nn.functional.instance_norm nn.LocalResponseNorm":
        "`nn.GroupNorm(channels, channels)` is an instance norm with a scale",
    "nn.RNN nn.RNNCell nn.LSTMCell nn.GRUCell":
        "`nn.LSTM` or `nn.GRU`, a step at a time of `x[None]`",
    "nn.ParameterList nn.ParameterDict":
        "parameters as attributes, or an `nn.ModuleList` of modules that have one each",
    "nn.EmbeddingBag nn.Bilinear nn.Unfold nn.Fold nn.functional.unfold nn.functional.fold":
        "write it with `index_select`, `einsum` or `reshape`",
    "nn.CTCLoss nn.TripletMarginLoss nn.CosineEmbeddingLoss nn.MarginRankingLoss nn.MultiMarginLoss nn.PoissonNLLLoss nn.GaussianNLLLoss "
    "nn.SoftMarginLoss nn.functional.ctc_loss nn.functional.triplet_margin_loss":
        "write it out, and divide it by the count of the whole batch",
    "nn.Hardtanh nn.Hardsigmoid nn.Softsign nn.Tanhshrink nn.Threshold nn.CELU nn.RReLU nn.Softmax2d nn.Softmin nn.AlphaDropout":
        "write it with `clamp`, `where`, `exp` and the like",
    "nn.ZeroPad2d nn.ConstantPad1d nn.ConstantPad2d nn.ReflectionPad2d nn.ReplicationPad2d":
        "`F.pad(x, (left, right, above, below))`, of one value",
    "nn.Unflatten nn.CosineSimilarity nn.PairwiseDistance":
        "`x.reshape`, `F.cosine_similarity`, `(a - b).norm(2, 1)` in a forward",
    "nn.utils.weight_norm nn.utils.spectral_norm nn.utils.prune nn.utils.parametrize nn.utils.parametrizations":
        "compute the weight in a forward, and give it to `F.linear` or `F.conv2d`",
    "nn.utils.rnn.pack_padded_sequence nn.utils.rnn.pad_packed_sequence nn.utils.rnn.PackedSequence":
        "`nn.utils.rnn.pad_sequence`, and a mask where the loss is computed",
    "nn.functional.gumbel_softmax nn.functional.multi_head_attention_forward":
        "write it out",
    "optim.Adadelta optim.Adamax optim.NAdam optim.RAdam optim.ASGD optim.Rprop optim.SparseAdam optim.LBFGS":
        "SGD, Adam, AdamW, Adagrad, RMSprop, Lion and Muon are there",
    "optim.swa_utils":
        "`optim.EMA` averages, `swap()` puts the averages in",
    "optim.lr_scheduler.CosineAnnealingWarmRestarts optim.lr_scheduler.CyclicLR optim.lr_scheduler.MultiplicativeLR "
    "optim.lr_scheduler.ChainedScheduler":
        "`LambdaLR(optimizer, lambda step: …)`, or `SequentialLR`",
}
ABSENT = {name: words for names, words in _WORDS.items() for name in names.split()}


def answer_for(room: str) -> None:
    """Lets a module say of a name that it has not what ABSENT says of it."""
    module = sys.modules[room]
    below = room.removeprefix("shardgrad").removeprefix(".")

    def missing(name: str):
        words = ABSENT.get(f"{below}.{name}" if below else name)
        said = f"module '{room}' has no attribute '{name}'"
        raise AttributeError(f"{said}: {words}" if words else said, name=name, obj=module)

    setattr(module, "__getattr__", missing)


def section() -> str:
    """The table of docs/python.md."""
    rows = (f"| {', '.join(f'`{name}`' for name in names.split())} | {words} |\n" for names, words in _WORDS.items())
    return "| not here | instead |\n|---|---|\n" + "".join(rows)

