// tests/lru2_test.cpp: what was used last, or last but one, is still there; what is made anew takes the place of the older.
#include "core/memory/lru2.h"

#include "check.h"

using namespace millstream;

namespace {

// Uses a number; tells whether it had to be made.
bool made(LastTwo<int>& numbers, int wanted) {
  auto& found = numbers.find([&](int number) { return number == wanted; });
  const bool anew = found != wanted;
  found = wanted;
  return anew;
}

void going_back_and_forth_between_two_makes_each_once() {
  LastTwo<int> numbers;
  CHECK(made(numbers, 1) && made(numbers, 2));
  for (int i = 0; i < 5; ++i) CHECK(!made(numbers, 1) && !made(numbers, 2) && !made(numbers, 2));
}

void a_third_takes_the_place_of_the_older_one() {
  LastTwo<int> numbers;
  CHECK(made(numbers, 1) && made(numbers, 2) && !made(numbers, 1) && made(numbers, 3));
  CHECK(!made(numbers, 1) && !made(numbers, 3) && made(numbers, 2));
}

}  // namespace

int main() {
  going_back_and_forth_between_two_makes_each_once();
  a_third_takes_the_place_of_the_older_one();
}
