// tests/runs_test.cpp: runs of a column in pieces.
#include "core/kernels/runs.h"

#include "check.h"

using namespace millstream;

namespace {

using Numbers = std::vector<std::uint32_t>;

std::optional<Runs> of(const std::vector<Numbers>& pieces) {
  const std::vector<std::span<const std::uint32_t>> views(pieces.begin(), pieces.end());
  return runs_of(views);
}

void a_run_goes_on_in_the_next_piece() {
  const auto runs = of({{7, 7, 7}, {}, {7, 7, 5}, {5, 5}, {7, 7}});
  CHECK(runs.has_value());
  CHECK((runs->values == Numbers{7, 5, 7}));
  CHECK((runs->lengths == Numbers{5, 3, 2}));
}

void runs_that_take_more_room_than_numbers_are_none() {
  CHECK(!of({{1}}));
  CHECK(of({{1, 1}}));
  CHECK(of({{1, 1}, {2, 2}}));
  CHECK(!of({{1, 1}, {2, 3}}));
  CHECK(!of({}));
  CHECK(!of({{}, {}}));
}

}  // namespace

int main() {
  a_run_goes_on_in_the_next_piece();
  runs_that_take_more_room_than_numbers_are_none();
}
