#include <shardgrad/train/program.h>

int main(int argc, char** argv) { return shardgrad::train::program(argc, argv); }
