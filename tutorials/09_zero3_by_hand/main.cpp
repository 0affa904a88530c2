// ZeRO-3 by hand, on one to six ranks: what a rank holds and sends, and whether it learns the same.

#include <shardgrad/tutorials/by_hand.h>

#include YOURS  // solution.cpp, or your copy of exercise.cpp

int main(int count, char** words) { return learn::run(count, words, by_hand::climb<Trainer, 6, 100, 7>); }
