// Data parallel training by hand, on one to four ranks: what a rank holds and sends.

#include <shardgrad/tutorials/by_hand.h>

#include YOURS  // solution.cpp, or your copy of exercise.cpp

int main(int count, char** words) { return learn::run(count, words, by_hand::climb<Trainer>); }
