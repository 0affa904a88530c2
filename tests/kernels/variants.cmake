# The kernels' tests once more for each lower instruction set and for the own matrix product; what each machine's best
# gives is tested by the entries of test_kernels itself.
foreach(variant SHARDGRAD_ISA=plain SHARDGRAD_ISA=avx2 SHARDGRAD_GEMM=own)
  string(REGEX REPLACE ".*=" "" value ${variant})
  add_test(NAME kernels.${value} COMMAND test_kernels --gtest_brief=1 --gtest_filter=-*Slow*)
  set_tests_properties(kernels.${value} PROPERTIES LABELS project TIMEOUT 300 ENVIRONMENT ${variant})
endforeach()

# With it a cache changes no bit of a language model's logits (tests/nn/kv_cache_test.cpp).
add_test(NAME nn.kv_cache_own COMMAND test_nn --gtest_brief=1 --gtest_filter=KvCacheOfModels.*)
set_tests_properties(nn.kv_cache_own PROPERTIES LABELS fast TIMEOUT 300 ENVIRONMENT SHARDGRAD_GEMM=own)

# And for the kernels of kernels/cuda on the simulator: all tests of the table's operations in one process, which fails
# when one of its kernels was never launched (tests/sim/launched.cpp). On a GPU scripts/gpu-check runs them.
if(TARGET shardgrad_sim)
  add_test(NAME kernels.sim COMMAND test_kernels --gtest_brief=1 --gtest_filter=-Cpu*:*Slow*)
  set_tests_properties(kernels.sim PROPERTIES LABELS "project;sim" TIMEOUT 900 COST 30 ENVIRONMENT SHARDGRAD_TEST_DEVICE=sim)
  add_test(NAME kernels.sim_in_full COMMAND test_kernels --gtest_brief=1 --gtest_filter=-Cpu*)
  set_tests_properties(kernels.sim_in_full PROPERTIES LABELS "slow;sim" TIMEOUT 1800 ENVIRONMENT
    SHARDGRAD_TEST_DEVICE=sim)
endif()

# Hot loops may export their tables only: an inline function compiled for AVX-512 must not become the program's copy.
find_program(NM nm)
if(NM AND NOT SHARDGRAD_SANITIZE AND TARGET shardgrad_avx512)
  add_test(NAME kernels.hot_loops_export_no_shared_code
           COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/no_shared_code.sh ${NM} $<TARGET_OBJECTS:shardgrad_avx2>
                   $<TARGET_OBJECTS:shardgrad_avx512>
           COMMAND_EXPAND_LISTS)
  set_tests_properties(kernels.hot_loops_export_no_shared_code PROPERTIES LABELS fast)
endif()
