#pragma once
// All that a program with a model and data of its own needs: <shardgrad/shardgrad.h>. What is for who writes
// operations and kernels is not here (docs/extending.md).

#include <shardgrad/autograd/dlpack.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/recompute.h>
#include <shardgrad/autograd/rope_table.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/step_graph.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/launch/job.h>
#include <shardgrad/dist/launch/launch_local.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/fairscale.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/fsdp/grad_scaler.h>
#include <shardgrad/fsdp/plan.h>
#include <shardgrad/fsdp/setup/wrap.h>
#include <shardgrad/fsdp/sharded_ddp.h>
#include <shardgrad/fsdp/state/replicas.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/fsdp/sync_batchnorm.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/optim/composed.h>
#include <shardgrad/optim/ema.h>
#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/optim/muon.h>
#include <shardgrad/optim/schedule.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/parallel/collectives.h>

#if __has_include(<shardgrad/train/program.h>)  // SHARDGRAD_TRAIN, which is on unless somebody turned it off
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/csv.h>
#include <shardgrad/train/data/data_loader.h>
#include <shardgrad/train/data/fashion_mnist.h>
#include <shardgrad/train/data/npy.h>
#include <shardgrad/train/data/text_data.h>
#include <shardgrad/train/data/tokens.h>
#include <shardgrad/train/fit.h>
#include <shardgrad/train/generate.h>
#include <shardgrad/train/program.h>
#include <shardgrad/train/tasks/next_token.h>
#include <shardgrad/train/tasks/supervised.h>
#include <shardgrad/train/text/tokenizer.h>
#include <shardgrad/train/trainer.h>
#endif
