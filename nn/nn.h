#pragma once
// All of nn.

#include <shardgrad/nn/activation.h>
#include <shardgrad/nn/containers.h>
#include <shardgrad/nn/convolution.h>
#include <shardgrad/nn/data_parallel.h>
#include <shardgrad/nn/dropout.h>
#include <shardgrad/nn/embedding.h>
#include <shardgrad/nn/gpt2.h>
#include <shardgrad/nn/init.h>
#include <shardgrad/nn/language_model.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/llama.h>
#include <shardgrad/nn/loss.h>
#include <shardgrad/nn/module.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/nn/recompute.h>
#include <shardgrad/nn/recurrent.h>
